// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"sync"
	"time"

	"navix.sh/atoll/pkg/problem"
)

// intake limits the bodies that arrive at the same time. Each caller has its own share of memory. A body that is being received costs up to
// its maximum size; one that waits costs the window of its stream.
type intake struct {
	slots   int // bodies of one caller that are received at a time
	waiting int // bodies of one caller that may wait for a slot, while there are few callers
	least   int // the same, while there are many callers
	inAll   int // bodies of all callers together

	mu      sync.Mutex
	callers map[string]*share
}

type share struct {
	slots chan struct{}
	users int // callers that hold a slot or wait for one
}

// newIntake returns an intake for authenticated callers, or for callers on loopback.
func newIntake() *intake {
	return &intake{slots: 64, waiting: 512, least: 32, inAll: 2048, callers: map[string]*share{}}
}

// newOpenIntake returns an intake for calls without credentials, which are health checks, counted per address. None of them waits.
func newOpenIntake() *intake {
	return &intake{slots: 8, least: 1, inAll: 64, callers: map[string]*share{}}
}

// enter blocks until a body of the caller may be received.
func (i *intake) enter(ctx context.Context, caller string, patience time.Duration) (leave func(), err error) {
	s, ok := i.join(caller)
	if !ok {
		return nil, errCrowded()
	}
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots; i.part(caller, s) }, nil
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots; i.part(caller, s) }, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errCrowded()
	}
	i.part(caller, s)
	return nil, err
}

func errCrowded() error {
	return problem.New(problem.RateLimited, "too many other requests of this caller have not arrived in full yet").WithRetryAfter(time.Second)
}

func (i *intake) join(caller string) (*share, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.callers[caller]
	if s == nil {
		s = &share{slots: make(chan struct{}, i.slots)}
	}
	if callers := max(1, len(i.callers)); s.users >= min(i.slots+i.waiting, max(i.least, i.inAll/callers)) {
		return nil, false
	}
	i.callers[caller] = s
	s.users++
	return s, true
}

func (i *intake) part(caller string, s *share) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(i.callers, caller)
	}
}
