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

// Process is one program of the stack. It can be ended and started again with the same arguments, and so on the same
// ports. Methods may be called one at a time.
type Process struct {
	Name    string
	LogPath string

	set    *plane.Set
	path   string
	args   []string
	health string // address of /readyz

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

// Start runs the program and returns when it says that it is ready.
func (p *Process) Start(ctx context.Context) error {
	if err := p.Launch(); err != nil {
		return err
	}
	return p.WaitReady(ctx)
}

// Launch runs the program without waiting for it.
func (p *Process) Launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return fmt.Errorf("%s is running already", p.Name)
	}
	log, err := os.OpenFile(p.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", p.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...)
	// Nothing of the caller's settings (ATOLL_*) may change how the stack behaves.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.set.Dir()}
	cmd.Stdout, cmd.Stderr = log, log
	p.set.Adopt(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	p.cmd, p.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(p.done)
	return nil
}

// WaitReady returns when /readyz answers 200, and fails at once when the program has ended.
func (p *Process) WaitReady(ctx context.Context) error {
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
			return fmt.Errorf("waiting for %s to be ready: %w\n%s", p.Name, context.Cause(ctx), p.lastWords())
		case <-p.ended():
			return fmt.Errorf("%s ended while starting\n%s", p.Name, p.lastWords())
		case <-ticker.C:
		}
	}
}

// Kill ends the program as a crash does.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL) }

// Stop asks the program to end and waits for it.
func (p *Process) Stop() error { return p.end(syscall.SIGTERM) }

// Pause freezes the program: its connections stay open and nothing answers.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume ends Pause.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// stopPatience is more than any program needs to hand over its lease.
const stopPatience = 20 * time.Second

func (p *Process) end(sig syscall.Signal) error {
	err := p.signal(sig)
	ended := p.ended()
	if err == nil {
		select {
		case <-ended:
		case <-time.After(stopPatience):
			err = fmt.Errorf("%s did not end within %s of %s\n%s", p.Name, stopPatience, sig, p.lastWords())
			err = errors.Join(err, p.signal(syscall.SIGKILL))
			<-ended
		}
	}
	p.mu.Lock()
	p.cmd = nil
	p.mu.Unlock()
	return err
}

func (p *Process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s is not running", p.Name)
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %s to %s: %w", sig, p.Name, err)
	}
	return nil
}

// Ended tells whether the program has ended by itself.
func (p *Process) Ended() bool {
	select {
	case <-p.ended():
		return true
	default:
		return false
	}
}

func (p *Process) ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// lastWords is the end of the log, for errors.
func (p *Process) lastWords() string {
	const limit = 3000
	log, err := os.ReadFile(p.LogPath)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("--- %s\n%s", p.LogPath, strings.TrimSpace(string(log[max(0, len(log)-limit):])))
}
