// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

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
	pid, err := p.pid()
	if err != nil {
		return 0, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the peak memory of %s: %w", p.name, err)
	}
	for line := range bytes.Lines(status) {
		fields := bytes.Fields(line)
		if len(fields) != 3 || string(fields[0]) != "VmHWM:" {
			continue
		}
		kib, err := strconv.ParseInt(string(fields[1]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the peak memory of %s: %w", p.name, err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("reading the peak memory of %s: it has ended", p.name)
}

func (p *process) pid() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0, fmt.Errorf("%s is not running", p.name)
	}
	return p.cmd.Process.Pid, nil
}

// CPU implements Measured.
func (p *process) CPU() (time.Duration, error) {
	pid, err := p.pid()
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of %s: %w", p.name, err)
	}
	// The name, in parentheses, may have spaces.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const user, system = 11, 12
	if len(fields) <= system {
		return 0, fmt.Errorf("reading the processor time of %s: %q is not valid", p.name, text)
	}
	var ticks int64
	for _, field := range [][]byte{fields[user], fields[system]} {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the processor time of %s: %w", p.name, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / userHertz), nil
}

// userHertz is the kernel's unit of a process' times, on every architecture that Go has.
const userHertz = 100
