// SPDX-License-Identifier: Apache-2.0

package idle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"navix.sh/atoll/pkg/wallclock"
)

const (
	// pace is the minimum time between two checks.
	pace = time.Second
	// readTimeout is how long a source may take to respond.
	readTimeout = 2 * time.Second
	// parallel bounds the writes that end sandboxes. More would only queue at the API server.
	parallel = 16
)

// LastActiveSource reports activity. Its times have monotonic readings of this process. If it returns an error, no sandbox ends for lack of
// activity, so a source returns one when it is not sure. Its state ends with this process. The owner of the source therefore also calls
// Touch, every other second while there is activity, so that a later leader has the activity.
type LastActiveSource interface {
	GetLastActive(ctx context.Context) (map[string]time.Time, error)
}

var errUnread = errors.New("a source of activity could not be read")

// Run checks sandboxes when they are due, until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	slots := make(chan struct{}, parallel)
	for m.await(ctx) {
		for _, e := range m.takeExpired(ctx, m.opts.Clock.Now()) {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				m.settle(e)
				continue
			}
			work.Go(func() {
				defer func() { <-slots }()
				m.end(ctx, e)
			})
		}
		if wallclock.Sleep(ctx, m.opts.Clock, pace) != nil {
			return
		}
	}
}

// await waits until something is due. It returns false when ctx has ended.
func (m *Monitor) await(ctx context.Context) bool {
	for {
		var fires <-chan time.Time
		stop := func() bool { return false }
		if at := m.earliest(); !at.IsZero() {
			left := at.Sub(m.opts.Clock.Now())
			if left <= 0 {
				return ctx.Err() == nil
			}
			timer := m.opts.Clock.NewTimer(left)
			fires, stop = timer.C(), timer.Stop
		}
		select {
		case <-fires:
			return ctx.Err() == nil
		case <-m.woken:
			stop()
		case <-ctx.Done():
			stop()
			return false
		}
	}
}

func (m *Monitor) earliest() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.due.First(); ok {
		return e.at
	}
	return time.Time{}
}

// takeExpired returns the sandboxes whose time is up. They count as being ended from then on.
func (m *Monitor) takeExpired(ctx context.Context, now time.Time) []*entry {
	if at := m.earliest(); at.IsZero() || at.After(now) {
		return nil
	}
	err := m.readSources(ctx)
	if err != nil {
		m.skipped.Inc()
		if !m.unsure {
			m.opts.Log.Error(err, "Ending no sandbox for lack of activity")
		}
	}
	m.unsure = err != nil
	m.mu.Lock()
	defer m.mu.Unlock()
	var over, on []*entry
	for e, ok := m.due.First(); ok && !e.at.After(now); e, ok = m.due.First() {
		m.due.Remove(e)
		if d := decide(&e.Life, err == nil, now); d.Reason != "" {
			e.ending, e.asked = make(chan struct{}), err == nil
			over = append(over, e)
		} else if e.at = d.Until; !e.at.IsZero() {
			on = append(on, e)
		}
	}
	for _, e := range on {
		m.due.Push(e)
	}
	return over
}

// readSources reads all sources.
func (m *Monitor) readSources(ctx context.Context) error {
	if len(m.opts.Sources) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var errs []error
	for _, source := range m.opts.Sources {
		active, err := source.GetLastActive(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		m.takeIn(active)
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", errUnread, errors.Join(errs...))
	}
	return nil
}

func (m *Monitor) takeIn(active map[string]time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.opts.Clock.Now()
	for id, at := range active {
		if e := m.entries[id]; e != nil && !at.After(now) {
			e.Life.Active = later(e.Life.Active, at)
		}
	}
}

// end ends a sandbox. If the sandbox still exists after that, it is checked again.
func (m *Monitor) end(ctx context.Context, e *entry) {
	err := m.opts.End(ctx, e.id)
	if err != nil && ctx.Err() == nil {
		m.opts.Log.Error(err, "Could not end a sandbox whose time is up", "sandbox", e.id)
	}
	m.settle(e)
}

func (m *Monitor) settle(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(e.ending)
	e.ending = nil
	if m.entries[e.id] == e {
		m.plan(e)
	}
}
