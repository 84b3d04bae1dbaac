// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"navix.sh/atoll/e2e/stack"
)

// restartPause is the time between a program's end and its restart.
const restartPause = 100 * time.Millisecond

// startPatience bounds a program's start without faults.
const startPatience = time.Minute

// program is a hub or worker that is restarted when it exits.
type program struct {
	mu      sync.Mutex
	program stack.Program
	down    bool // on purpose
	kills   int
	ends    []string // its last log line, each time that it exited
}

// deaths returns how often the program was killed or exited since the last call, and its last log line of each exit.
func (p *program) deaths() (times int, ends []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	times, ends = p.kills+len(p.ends), p.ends
	p.kills, p.ends = 0, nil
	return times, ends
}

// bury makes an exited program ready for a restart.
func (p *program) bury() error {
	log, err := os.ReadFile(p.program.LogPath())
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	p.ends = append(p.ends, fmt.Sprintf("%s: %s", p.program, lines[len(lines)-1]))
	return errors.Join(err, p.program.Kill())
}

// tend starts to watch a running program.
func (w *world) tend(name string, p stack.Program) *program {
	tended := &program{program: p}
	w.programs[name] = tended
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { tended.care(ctx) })
	w.closers = append(w.closers, func() error {
		cancel()
		running.Wait()
		return nil
	})
	return tended
}

// care restarts the program whenever it has exited.
func (p *program) care(ctx context.Context) {
	ticker := time.NewTicker(restartPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.revive(ctx)
		}
	}
}

func (p *program) revive(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down || !p.program.Ended() {
		return
	}
	// If it is not ready yet, or has exited again, the next check handles it.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = p.bury()
	_ = p.program.Start(ctx)
}

// kill ends the program at once and leaves it down.
func (p *program) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kills++
	return p.end(p.program.Kill)
}

// stop lets the program end in order and leaves it down.
func (p *program) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end(p.program.Stop)
}

func (p *program) end(how func() error) error {
	down := p.down
	p.down = true
	switch {
	case !p.program.Ended():
		return how()
	case down:
		return nil
	default:
		return p.bury()
	}
}

// start restarts the program until it is ready; once more if it exits, as a worker does that finds its etcd restored.
func (p *program) start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	p.down = false // from here on it may not stay down, whatever this call's outcome
	for {
		err := p.program.Start(ctx)
		if err == nil || !p.program.Ended() {
			return err
		}
		if buried := p.bury(); buried != nil {
			return errors.Join(err, buried)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(restartPause):
		}
	}
}

// startFor restarts the program, and waits at most that long.
func (p *program) startFor(ctx context.Context, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	p.down = false
	_ = p.program.Start(ctx)
}

// crash kills the program and restarts it.
func (p *program) crash(ctx context.Context) error {
	if err := p.kill(); err != nil {
		return err
	}
	return p.start(ctx)
}

// pause freezes the program, resume ends that.
func (p *program) pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.program.Pause()
}

func (p *program) resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.program.Resume()
}
