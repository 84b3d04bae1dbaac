// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/pkg/wallclock"
)

// Source provides the sandboxes of clusters.
type Source interface {
	// Clusters returns every cluster, connected or not.
	Clusters() []string
	// Away reports whether a cluster has been silent for so long that its feed may be out of date.
	Away(cluster string) bool
	// Open returns a feed of the sandboxes of a cluster in a Scope. The feed ends when ctx ends, at the latest.
	Open(ctx context.Context, cluster string, scope Scope) (Feed, error)
	// LastKnown returns the last known sandboxes of a cluster in a Scope. They are used while there is no feed. The caller must not modify
	// them.
	LastKnown(cluster string, scope Scope) []Known
}

// Known is a sandbox with the age of this information.
type Known struct {
	Sandbox *sandboxv1.Sandbox
	Age     time.Duration
}

// Feed delivers changes. It starts with all existing sandboxes, up to the first changes that are marked complete.
type Feed interface {
	Next() (*federationv1.SandboxChanges, error)
	Close()
}

// Pauses between attempts to open a feed.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = time.Second
	// longPause follows an attempt that failed for a reason that the next one will probably meet too.
	longPause = 30 * time.Second
)

var (
	errBudget  = errors.New("its sandboxes take more memory than a cluster may")
	errForeign = errors.New("it names a sandbox that is not one of its own")
)

// follow keeps the copy of a cluster's sandboxes up to date until ctx ends.
func (t *topic) follow(ctx context.Context, cluster string, m *member) {
	recall := sync.OnceFunc(func() { t.recall(cluster, t.service.source.LastKnown(cluster, t.scope)) })
	for pause := firstPause; ; {
		began := t.service.clock.Now()
		err := t.feed(ctx, cluster, m)
		if ctx.Err() != nil {
			return
		}
		recall()
		t.setCurrent(m, false)
		switch {
		case errors.Is(err, errBudget) || errors.Is(err, errForeign) || problem.FromError(err).Reason == problem.Unimplemented:
			pause = longPause
		case t.service.clock.Since(began) > lastPause:
			pause = firstPause
		default:
			pause = min(2*pause, lastPause)
		}
		t.service.log.V(1).Info("A feed of sandboxes broke off", "cluster", cluster, "reason", fmt.Sprint(err))
		if wallclock.Sleep(ctx, t.service.clock, pause) != nil {
			return
		}
	}
}

// feed copies the changes of one feed.
func (t *topic) feed(ctx context.Context, cluster string, m *member) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	feed, err := t.service.source.Open(ctx, cluster, t.scope)
	if err != nil {
		return err
	}
	close := sync.OnceFunc(feed.Close)
	defer close()
	defer context.AfterFunc(ctx, close)()
	there := map[string]struct{}{} // sandboxes received before the feed was complete
	for {
		changes, err := feed.Next()
		if err != nil {
			return err
		}
		for _, s := range changes.GetChanged() {
			if !owns(cluster, s.GetId()) {
				return fmt.Errorf("%w: %q", errForeign, validate.Clip(s.GetId()))
			}
			if there != nil {
				there[s.GetId()] = struct{}{}
			}
			if !t.put(cluster, m, s) {
				return errBudget
			}
		}
		for _, s := range changes.GetGone() {
			if owns(cluster, s.GetId()) {
				delete(there, s.GetId())
				t.markEnded(s)
			}
		}
		if changes.GetComplete() && there != nil {
			t.markMissing(cluster, there)
			there = nil
			t.setCurrent(m, true)
		}
	}
}

// budget bounds the bytes that each cluster uses in all copies (I14).
type budget struct {
	most int
	mu   sync.Mutex
	used map[string]int
}

func (b *budget) take(cluster string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > 0 && b.used[cluster]+n > b.most {
		return false
	}
	b.used[cluster] += n
	return true
}

func (b *budget) give(cluster string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used[cluster] -= n; b.used[cluster] <= 0 {
		delete(b.used, cluster)
	}
}

// Pipe returns a feed of the changes that run sends.
func Pipe(ctx context.Context, run func(ctx context.Context, send func(*federationv1.SandboxChanges) error) error) Feed {
	p := &pipe{changes: make(chan *federationv1.SandboxChanges), done: make(chan struct{})}
	ctx, p.end = context.WithCancel(ctx)
	go func() {
		defer close(p.done)
		p.err = run(ctx, func(c *federationv1.SandboxChanges) error {
			select {
			case p.changes <- c:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return p
}

type pipe struct {
	changes chan *federationv1.SandboxChanges
	done    chan struct{}
	err     error // set before done is closed
	end     context.CancelFunc
}

func (p *pipe) Next() (*federationv1.SandboxChanges, error) {
	select {
	case c := <-p.changes:
		return c, nil
	case <-p.done:
		if p.err == nil {
			return nil, errOver
		}
		return nil, p.err
	}
}

func (p *pipe) Close() {
	p.end()
	<-p.done
}

var errOver = errors.New("the feed is over")
