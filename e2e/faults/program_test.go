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

// restartPause is between the end of a program and its next start.
const restartPause = 100 * time.Millisecond

// startPatience is how long a program may take to be ready where nothing is broken.
const startPatience = time.Minute

// program is a hub or worker that is started again when it ends by itself.
type program struct {
	mu      sync.Mutex
	program stack.Program
	down    bool // on purpose
	kills   int
	ends    []string // what it logged last each time that it ended by itself
}

// deaths returns how often the program was killed or ended by itself since the last call, and what it logged last each time
// that it ended by itself.
func (p *program) deaths() (times int, ends []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	times, ends = p.kills+len(p.ends), p.ends
	p.kills, p.ends = 0, nil
	return times, ends
}

// bury makes a program that has ended by itself ready to be started again.
func (p *program) bury() error {
	log, err := os.ReadFile(p.program.LogPath())
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	p.ends = append(p.ends, fmt.Sprintf("%s: %s", p.program, lines[len(lines)-1]))
	return errors.Join(err, p.program.Kill())
}

// tend takes a program that runs into care.
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

// care starts the program again whenever it has ended by itself.
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
	// That it is not ready yet, or has ended again, the next look will show.
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

// start runs the program again and returns when it is ready. One that ends by itself on the way is started once more:
// a worker that finds its etcd set back ends so that it begins anew, and a kubelet would start it again.
func (p *program) start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	p.down = false // from here on it may not stay down, whatever becomes of this call
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

// startFor runs the program again, whatever it has come to when that time is up.
func (p *program) startFor(ctx context.Context, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	p.down = false
	_ = p.program.Start(ctx)
}

// crash kills the program and starts it again.
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
