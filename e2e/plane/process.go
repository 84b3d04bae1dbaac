// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"navix.sh/atoll/e2e/wait"
)

const (
	// respawnDelay slows the restarts of a component that cannot run.
	respawnDelay = 300 * time.Millisecond
	// maxEnds is how often a component may end before a wait fails.
	maxEnds = 5
)

// process is one component of a plane. It is restarted when it ends, as a kubelet does with static Pods; because components may
// exit while a test holds the API server, and must return after that.
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
	ends     int // unasked
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
	// The caller's environment (proxies, kubeconfigs, KWOK_*) must not change a plane's behaviour.
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
			// Waiting for the process fails at once, so it is retried.
			p.report("%v", err)
		}
		cmd = p.cmd
		p.mu.Unlock()
	}
}

// stop kills the process, even a frozen one, and waits for its end. A second call has no effect.
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
		// Repeatedly; because it may have been restarted just before.
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

// waitStopped waits until no thread of the process runs; because a signal to stop is delivered to them one after the other.
func (p *process) waitStopped() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s is not running", p.name)
	}
	tasks := fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid)
	return wait.Until(context.Background(), 10*time.Second, p.name+" to stop", func(context.Context) error {
		files, err := filepath.Glob(tasks)
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if errors.Is(err, os.ErrNotExist) {
				continue // the thread has ended
			} else if err != nil {
				return err
			}
			// The state follows the name, which is in parentheses and may have some.
			if _, state, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')'):], []byte(" ")); !bytes.HasPrefix(state, []byte("T")) {
				return fmt.Errorf("%s: %s", file, text)
			}
		}
		return nil
	})
}

// endings counts how often the process has ended without a stop.
func (p *process) endings() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends
}

// lastWords returns the end of the log, for errors about a process that does not start.
func (p *process) lastWords() string {
	const limit = 2048
	log, err := os.ReadFile(p.logPath)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	log = bytes.TrimSpace(log)
	return string(log[max(0, len(log)-limit):])
}
