// SPDX-License-Identifier: Apache-2.0

package idle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"

	"navix.sh/atoll/worker/internal/priority"
)

// Options configure a Monitor. Clock, End and Write are required.
type Options struct {
	Clock clock.Clock
	// Sources report activity that Touch does not.
	Sources []LastActiveSource
	// End ends a sandbox, unless Decide then says that it stays.
	End func(ctx context.Context, id string) error
	// Write writes the time of a sandbox's last activity.
	Write   func(ctx context.Context, id string, at time.Time) error
	Metrics prometheus.Registerer // nil: none
	Log     logr.Logger
}

// Monitor holds the lives of all sandboxes. Its methods are safe for concurrent use. It waits for none of its callbacks with a lock held.
type Monitor struct {
	opts    Options
	skipped prometheus.Counter
	writes  singleflight.Group
	woken   chan struct{} // has a token when something is due earlier than before
	unsure  bool          // the last check could not read every source; only Run uses it

	mu      sync.Mutex
	entries map[string]*entry
	due     priority.Queue[*entry] // by time of the next check
}

// entry is one live sandbox.
type entry struct {
	id      string
	Life    Life
	written time.Time     // written time of activity; zero if none
	at      time.Time     // time of the next check; zero is never
	index   int           // in the queue
	ending  chan struct{} // set while it is being ended; closed when that is over
	asked   bool          // every source was read before the decision to end
}

// New returns a Monitor without sandboxes.
func New(opts Options) (*Monitor, error) {
	m := &Monitor{
		opts: opts, entries: map[string]*entry{}, woken: make(chan struct{}, 1),
		due: priority.New(func(a, b *entry) bool { return a.at.Before(b.at) }, func(e *entry) *int { return &e.index }),
		skipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_worker_activity_unknown_total",
			Help: "Checks of timeouts during which a source of activity could not be read, so that no sandbox ended for lack of activity.",
		}),
	}
	if opts.Metrics != nil {
		if err := opts.Metrics.Register(m.skipped); err != nil {
			return nil, fmt.Errorf("registering metrics of timeouts: %w", err)
		}
	}
	return m, nil
}

// Take takes a sandbox over from an earlier leader.
func (m *Monitor) Take(id string, l Life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entryOf(id)
	e.Life = l
	if !l.Active.IsZero() {
		e.written = l.Active.Add(-writeEvery) // so that the next activity is written
	}
	m.plan(e)
}

// See updates the state of a live sandbox. A new one counts as claimed now.
func (m *Monitor) See(id string, t Timeouts, running bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.opts.Clock.Now()
	e := m.entryOf(id)
	if e.Life.Claimed.IsZero() {
		e.Life.Claimed = now
	} else if e.Life.Timeouts == t && running == !e.Life.Started.IsZero() {
		return
	}
	if e.Life.Paused && !t.Paused {
		e.Life.Active = later(e.Life.Active, now)
	}
	e.Life.Timeouts = t
	if running && e.Life.Started.IsZero() {
		e.Life.Started = now
	}
	m.plan(e)
}

// Renew restarts every sandbox's idle time, and the wait for its first activity, because the written activity cannot be trusted.
func (m *Monitor) Renew() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.opts.Clock.Now()
	for _, e := range m.entries {
		if !e.Life.Started.IsZero() {
			e.Life.Started = now // from which idle time counts
			m.plan(e)
		}
	}
}

// Forget removes a sandbox that has ended.
func (m *Monitor) Forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[id]
	if e == nil {
		return
	}
	delete(m.entries, id)
	if e.index != priority.None {
		m.due.Remove(e)
	}
}

// Decide returns whether a sandbox that is being ended still has to end, given its current state.
func (m *Monitor) Decide(id string) Decision {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[id]; e != nil {
		return decide(&e.Life, e.asked, m.opts.Clock.Now())
	}
	return Decision{}
}

// Touch records activity of a sandbox. If it returns nil, the sandbox has ended, or counts as active now, including for a later leader.
func (m *Monitor) Touch(ctx context.Context, id string) error {
	for {
		at, ending, behind := m.touch(id)
		switch {
		case ending != nil:
			select {
			case <-ending:
			case <-ctx.Done():
				return ctx.Err()
			}
		case behind:
			return m.write(ctx, id, at)
		default:
			return nil
		}
	}
}

func (m *Monitor) touch(id string) (at time.Time, ending <-chan struct{}, behind bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[id]
	if e == nil || e.ending != nil {
		if e != nil {
			ending = e.ending
		}
		return time.Time{}, ending, false
	}
	at = m.opts.Clock.Now()
	e.Life.Active = later(e.Life.Active, at)
	return at, nil, e.behind(at)
}

// behind reports whether activity is so much later than the written time that it must be written.
func (e *entry) behind(active time.Time) bool {
	return !active.IsZero() && (e.written.IsZero() || active.Sub(e.written) >= writeEvery)
}

// write writes activity and finishes the write even if the caller leaves. Callers that arrive meanwhile share the write.
func (m *Monitor) write(ctx context.Context, id string, at time.Time) error {
	_, err, _ := m.writes.Do(id, func() (any, error) {
		if err := m.opts.Write(context.WithoutCancel(ctx), id, at); err != nil {
			return nil, err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if e := m.entries[id]; e != nil {
			e.written = later(e.written, at)
		}
		return nil, nil
	})
	return err
}

func (m *Monitor) entryOf(id string) *entry {
	e := m.entries[id]
	if e == nil {
		e = &entry{id: id, index: priority.None}
		m.entries[id] = e
	}
	return e
}

// plan sets the time of a sandbox's next check. The caller holds the lock.
func (m *Monitor) plan(e *entry) {
	if e.ending != nil {
		return
	}
	now := m.opts.Clock.Now()
	const asked = true // a failed read counts only when the time is up
	d := decide(&e.Life, asked, now)
	e.at = d.Until
	switch {
	case e.at.IsZero() && e.index != priority.None:
		m.due.Remove(e)
	case e.at.IsZero():
	case e.index != priority.None:
		m.due.Fix(e)
	default:
		m.due.Push(e)
	}
	if e.index == 0 {
		select {
		case m.woken <- struct{}{}:
		default:
		}
	}
}

// Len returns the number of sandboxes (I10).
func (m *Monitor) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}
