// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	// respawnDelay keeps a component that cannot run from spinning.
	respawnDelay = 300 * time.Millisecond
	// maxEnds is how often a component may end while something is waited for, until that is given up.
	maxEnds = 5
)

// process is one component of a plane. It is started again when it ends by itself, as a kubelet does with static Pods:
// components may give up while a test holds the API server, and must be back after it.
type process struct {
	name    string
	path    string
	args    []string
	dir     string
	logPath string
	adopt   func(*exec.Cmd)
	report  func(format string, args ...any)

	mu       sync.Mutex
	cmd      *exec.Cmd
	ends     int // by itself
	stopping chan struct{}
	done     chan struct{}
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping != nil {
		return fmt.Errorf("%s is running already", p.name)
	}
	if err := p.spawn(); err != nil {
		return err
	}
	p.stopping, p.done = make(chan struct{}), make(chan struct{})
	go p.supervise(p.cmd, p.stopping, p.done)
	return nil
}

// spawn needs p.mu held.
func (p *process) spawn() error {
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", p.name, err)
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir = p.dir
	// Nothing of the caller's environment (proxies, kubeconfigs, KWOK_*) may change how a plane behaves.
	cmd.Env = []string{"HOME=" + p.dir, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + p.dir}
	cmd.Stdout, cmd.Stderr = log, log
	p.adopt(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	p.cmd = cmd
	return nil
}

func (p *process) supervise(cmd *exec.Cmd, stopping <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	for {
		err := cmd.Wait()
		select {
		case <-stopping:
			return
		default:
			p.report("%s ended (%v), starting it again", p.name, err)
		}
		select {
		case <-stopping:
			return
		case <-time.After(respawnDelay):
		}
		p.mu.Lock()
		p.ends++
		if err := p.spawn(); err != nil {
			// Waiting for the last one fails at once, so it is tried again.
			p.report("%v", err)
		}
		cmd = p.cmd
		p.mu.Unlock()
	}
}

// stop kills the process, which also works on a frozen one, and waits for its end. Stopping twice is fine.
func (p *process) stop() {
	p.mu.Lock()
	stopping, done := p.stopping, p.done
	if stopping != nil {
		close(stopping)
		p.stopping = nil
	}
	p.mu.Unlock()
	if stopping == nil {
		return
	}
	for {
		// Again and again, as it may have been started anew just before it was told to stop.
		_ = p.signal(syscall.SIGKILL)
		select {
		case <-done:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s is not running", p.name)
	}
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("sending %s to %s: %w", sig, p.name, err)
	}
	return nil
}

// endings counts how often the process has ended by itself.
func (p *process) endings() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends
}

// lastWords is the end of the log, for errors about a process that does not come up.
func (p *process) lastWords() string {
	const limit = 2048
	log, err := os.ReadFile(p.logPath)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	log = bytes.TrimSpace(log)
	return string(log[max(0, len(log)-limit):])
}
