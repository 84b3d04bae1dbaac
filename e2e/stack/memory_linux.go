// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// LimitMemory implements Measured by a resource limit on private memory that can be written: heap and stacks. The address space
// (RLIMIT_AS) does not suit; because a Go program reserves much that it never uses.
func (p *process) LimitMemory(bytes int64) error {
	pid, err := p.pid()
	if err != nil {
		return err
	}
	limit := unix.Rlimit{Cur: uint64(bytes), Max: uint64(bytes)}
	if err := unix.Prlimit(pid, unix.RLIMIT_DATA, &limit, nil); err != nil {
		return fmt.Errorf("limiting the memory of %s: %w", p.name, err)
	}
	return nil
}

// ResetPeak implements Measured: the kernel forgets the peak.
func (p *process) ResetPeak() error {
	pid, err := p.pid()
	if err != nil {
		return err
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("resetting the peak memory of %s: %w", p.name, err)
	}
	return nil
}

// Peak implements Measured: the kernel keeps the peak, so that none is missed between two samples.
func (p *process) Peak() (int64, error) {
	proc, err := p.proc()
	if err != nil {
		return 0, err
	}
	status, err := proc.NewStatus()
	if err == nil && status.VmHWM == 0 {
		err = errors.New("it has ended")
	}
	if err != nil {
		return 0, fmt.Errorf("reading the peak memory of %s: %w", p.name, err)
	}
	return int64(status.VmHWM), nil
}

// CPU implements Measured.
func (p *process) CPU() (time.Duration, error) {
	proc, err := p.proc()
	if err != nil {
		return 0, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of %s: %w", p.name, err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}

func (p *process) proc() (procfs.Proc, error) {
	pid, err := p.pid()
	if err != nil {
		return procfs.Proc{}, err
	}
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.Proc{}, fmt.Errorf("looking at %s: %w", p.name, err)
	}
	return proc, nil
}

func (p *process) pid() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0, fmt.Errorf("%s is not running", p.name)
	}
	return p.cmd.Process.Pid, nil
}
