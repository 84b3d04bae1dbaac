// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"navix.sh/atoll/e2e/plane"
)

// process is a program on this machine. It is restarted with the same arguments, and so on the same ports.
type process struct {
	name   string
	log    string
	set    *plane.Set
	path   string
	args   []string
	env    []string
	health string // address of /readyz

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

func (p *process) String() string { return p.name }

func (p *process) LogPath() string { return p.log }

func (p *process) Start(ctx context.Context) error {
	if err := p.launch(); err != nil {
		return err
	}
	return p.waitReady(ctx)
}

// launch runs the program without waiting for it.
func (p *process) launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return fmt.Errorf("%s is running already", p.name)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", p.name, err)
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...)
	// The caller's settings (ATOLL_*) must not change the stack's behaviour.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.set.Dir()}, p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	p.set.Adopt(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(p.done)
	return nil
}

// waitReady returns when /readyz returns 200, and fails at once when the program has ended.
func (p *process) waitReady(ctx context.Context) error {
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		response, err := client.Get("http://" + p.health + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to be ready: %w\n%s", p.name, context.Cause(ctx), p.lastWords())
		case <-p.ended():
			return fmt.Errorf("%s ended while starting\n%s", p.name, p.lastWords())
		case <-ticker.C:
		}
	}
}

func (p *process) Kill() error { return p.end(syscall.SIGKILL) }

func (p *process) Stop() error { return p.end(syscall.SIGTERM) }

func (p *process) Pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	if cmd == nil {
		return nil // it was ended meanwhile
	}
	return awaitStopped(cmd.Process.Pid)
}

func (p *process) Resume() error { return p.signal(syscall.SIGCONT) }

// stopPatience is longer than any program takes to hand over its lease.
const stopPatience = 20 * time.Second

func (p *process) end(sig syscall.Signal) error {
	err := p.signal(sig)
	ended := p.ended()
	if err == nil {
		select {
		case <-ended:
		case <-time.After(stopPatience):
			err = fmt.Errorf("%s did not end within %s of %s\n%s", p.name, stopPatience, sig, p.lastWords())
			err = errors.Join(err, p.signal(syscall.SIGKILL))
			<-ended
		}
	}
	p.mu.Lock()
	p.cmd = nil
	p.mu.Unlock()
	return err
}

func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s is not running", p.name)
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %s to %s: %w", sig, p.name, err)
	}
	return nil
}

// FullDisk is a program whose disk can be made full.
type FullDisk interface {
	// LimitFiles forbids writes beyond that many bytes of any file; a negative number removes the limit.
	LimitFiles(bytes int64) error
}

// Measured is a program whose memory can be limited and measured.
type Measured interface {
	// LimitMemory ends the program when it takes more private memory than that many bytes, until it is started again.
	LimitMemory(bytes int64) error
	// ResetPeak begins a new measurement of Peak.
	ResetPeak() error
	// Peak is the most resident memory since ResetPeak, in bytes.
	Peak() (int64, error)
	// CPU is the processor time that the program has taken since it was started.
	CPU() (time.Duration, error)
}

func (p *process) Ended() bool {
	select {
	case <-p.ended():
		return true
	default:
		return false
	}
}

func (p *process) ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// lastWords returns the end of the log, for errors.
func (p *process) lastWords() string {
	const limit = 3000
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("--- %s\n%s", p.log, strings.TrimSpace(string(log[max(0, len(log)-limit):])))
}
