// SPDX-License-Identifier: Apache-2.0

package simnet

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Delay is how long bytes are in flight.
type Delay struct {
	Base, Jitter time.Duration
	// Rate in bytes a second; 0: no limit.
	Rate int
}

// Path is both directions between two hosts.
type Path struct {
	mu      sync.Mutex
	delay   Delay
	cut     bool
	stalled bool
	changed chan struct{} // closed and replaced when a stall ends, or a cut begins
	conns   map[*pair]struct{}
}

// Cut breaks all connections and refuses new ones until Heal.
func (p *Path) Cut() {
	p.mu.Lock()
	p.cut = true
	p.announce()
	p.mu.Unlock()
	p.Break()
}

// Stall stops everything sent from arriving until Heal, without an error at either end.
func (p *Path) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = true
}

// Heal ends a cut and a stall, and resets the delay.
func (p *Path) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.stalled = false, false
	p.delay = Delay{Base: time.Millisecond, Jitter: time.Millisecond}
	p.announce()
	for c := range p.conns {
		c.wake()
	}
}

// Break breaks all existing connections.
func (p *Path) Break() {
	p.mu.Lock()
	var all []*pair
	for c := range p.conns {
		all = append(all, c)
	}
	p.mu.Unlock()
	for _, c := range all {
		c.breakOff(ErrReset)
	}
}

func (p *Path) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// pass waits until the path is not stalled.
func (p *Path) pass(ctx context.Context) error {
	for {
		p.mu.Lock()
		cut, stalled, changed := p.cut, p.stalled, p.changed
		p.mu.Unlock()
		switch {
		case cut:
			return fmt.Errorf("dialling: %w", ErrRefused)
		case !stalled:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("dialling: %w", ctx.Err())
		}
	}
}

func (p *Path) join(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Path) leave(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Path) isStalled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stalled
}

func (p *Path) currentDelay() Delay {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}
