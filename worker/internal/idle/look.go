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
func (k *Keeper) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	slots := make(chan struct{}, parallel)
	for k.await(ctx) {
		for _, e := range k.takeExpired(ctx, k.opts.Clock.Now()) {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				k.settle(e)
				continue
			}
			work.Go(func() {
				defer func() { <-slots }()
				k.end(ctx, e)
			})
		}
		if wallclock.Sleep(ctx, k.opts.Clock, pace) != nil {
			return
		}
	}
}

// await waits until something is due. It returns false when ctx has ended.
func (k *Keeper) await(ctx context.Context) bool {
	for {
		var fires <-chan time.Time
		stop := func() bool { return false }
		if at := k.earliest(); !at.IsZero() {
			left := at.Sub(k.opts.Clock.Now())
			if left <= 0 {
				return ctx.Err() == nil
			}
			timer := k.opts.Clock.NewTimer(left)
			fires, stop = timer.C(), timer.Stop
		}
		select {
		case <-fires:
			return ctx.Err() == nil
		case <-k.woken:
			stop()
		case <-ctx.Done():
			stop()
			return false
		}
	}
}

func (k *Keeper) earliest() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, ok := k.due.First(); ok {
		return e.at
	}
	return time.Time{}
}

// takeExpired returns the sandboxes whose time is up. They count as being ended from then on.
func (k *Keeper) takeExpired(ctx context.Context, now time.Time) []*entry {
	if at := k.earliest(); at.IsZero() || at.After(now) {
		return nil
	}
	err := k.readSources(ctx)
	if err != nil {
		k.skipped.Inc()
		if !k.unsure {
			k.opts.Log.Error(err, "Ending no sandbox for lack of activity")
		}
	}
	k.unsure = err != nil
	k.mu.Lock()
	defer k.mu.Unlock()
	var over, on []*entry
	for e, ok := k.due.First(); ok && !e.at.After(now); e, ok = k.due.First() {
		k.due.Remove(e)
		if d := decide(&e.Life, err == nil, now); d.Reason != "" {
			e.ending, e.asked = make(chan struct{}), err == nil
			over = append(over, e)
		} else if e.at = d.Until; !e.at.IsZero() {
			on = append(on, e)
		}
	}
	for _, e := range on {
		k.due.Push(e)
	}
	return over
}

// readSources reads all sources.
func (k *Keeper) readSources(ctx context.Context) error {
	if len(k.opts.Sources) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var errs []error
	for _, source := range k.opts.Sources {
		active, err := source.GetLastActive(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		k.takeIn(active)
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", errUnread, errors.Join(errs...))
	}
	return nil
}

func (k *Keeper) takeIn(active map[string]time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.opts.Clock.Now()
	for id, at := range active {
		if e := k.entries[id]; e != nil && !at.After(now) {
			e.Life.Active = later(e.Life.Active, at)
		}
	}
}

// end ends a sandbox. If the sandbox still exists after that, it is checked again.
func (k *Keeper) end(ctx context.Context, e *entry) {
	err := k.opts.End(ctx, e.id)
	if err != nil && ctx.Err() == nil {
		k.opts.Log.Error(err, "Could not end a sandbox whose time is up", "sandbox", e.id)
	}
	k.settle(e)
}

func (k *Keeper) settle(e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(e.ending)
	e.ending = nil
	if k.entries[e.id] == e {
		k.plan(e)
	}
}
