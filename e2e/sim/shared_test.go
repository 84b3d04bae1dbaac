// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"navix.sh/atoll/pkg/store"
)

var errNoLeader = errors.New("the store has no leader")

// quorum is the store of several replicas: one content, whose quorum can be lost.
type quorum struct {
	*store.Memory
	mu     sync.Mutex
	random *rand.Rand
	lost   gate
}

// gate is closed or open; callers wait at a closed one.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // nil: open
}

func (g *gate) set(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case closed && g.opened == nil:
		g.opened = make(chan struct{})
	case !closed && g.opened != nil:
		close(g.opened)
		g.opened = nil
	}
}

func (g *gate) waits() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened
}

func (g *gate) pass(ctx context.Context) error {
	for {
		opened := g.waits()
		if opened == nil {
			return ctx.Err()
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (q *quorum) draw(most time.Duration) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Duration(q.random.Int64N(int64(most)))
}

// door is one replica's way to the store: cut where it is parted from the store, and of no use to a process that is dead.
type door struct {
	*quorum
	parted gate
	frozen *gate
	dead   context.Context
}

var _ store.Shared = (*door)(nil)

// way waits for everything that is between the replica and the store.
func (d *door) way(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(d.dead, end)()
	time.Sleep(d.draw(2 * time.Millisecond))
	for _, g := range []*gate{d.frozen, &d.parted, &d.lost} {
		if err := g.pass(ctx); err != nil {
			if d.dead.Err() != nil {
				return store.ErrClosed
			}
			return errors.Join(errNoLeader, err)
		}
	}
	return nil
}

// Get implements store.Store.
func (d *door) Get(ctx context.Context, key string) (store.Entry, bool, error) {
	if err := d.way(ctx); err != nil {
		return store.Entry{}, false, err
	}
	entry, found, err := d.Memory.Get(ctx, key)
	return entry, found, errors.Join(err, d.way(ctx))
}

// Range implements store.Store.
func (d *door) Range(ctx context.Context, prefix, after string, limit int) ([]store.Entry, error) {
	if err := d.way(ctx); err != nil {
		return nil, err
	}
	entries, err := d.Memory.Range(ctx, prefix, after, limit)
	return entries, errors.Join(err, d.way(ctx))
}

// Commit implements store.Store. A commit whose response is lost has happened.
func (d *door) Commit(ctx context.Context, txn store.Txn) (uint64, error) {
	if err := d.way(ctx); err != nil {
		return 0, err
	}
	revision, err := d.Memory.Commit(context.WithoutCancel(ctx), txn)
	if err != nil {
		return 0, err
	}
	return revision, d.way(ctx)
}

const (
	leaderLease = 5 * time.Second
	leaderPoll  = 500 * time.Millisecond
)

// Lead implements store.Shared. Leadership is lost some time after the way to the store.
func (d *door) Lead(ctx context.Context, election string, lead func(ctx context.Context)) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(d.dead, end)()
	for ctx.Err() == nil {
		if d.way(ctx) != nil {
			continue
		}
		term, lost := context.WithCancel(ctx)
		go func() {
			defer lost()
			for term.Err() == nil {
				try, end := context.WithTimeout(term, leaderLease)
				err := d.way(try)
				end()
				if err != nil {
					return
				}
				time.Sleep(leaderPoll)
			}
		}()
		_ = d.Memory.Lead(term, election, lead)
		lost()
	}
	return ctx.Err()
}

// Close implements store.Store: the store outlives its replicas.
func (d *door) Close() error { return nil }
