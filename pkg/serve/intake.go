// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"sync"
	"time"

	"navix.sh/atoll/pkg/problem"
)

// intakePerCaller is how many bodies of one caller are received at one time. What more there is waits where it is, in the
// windows of its connections.
const intakePerCaller = 64

// intake bounds the bodies that are being received, by caller: each has its own share of memory.
type intake struct {
	mu      sync.Mutex
	callers map[string]*share
}

type share struct {
	slots chan struct{}
	users int // who hold a slot or wait for one
}

func newIntake() *intake { return &intake{callers: map[string]*share{}} }

// enter waits until a body of the caller may be received.
func (i *intake) enter(ctx context.Context, caller string, patience time.Duration) (leave func(), err error) {
	s := i.join(caller)
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
		err = problem.New(problem.RateLimited, "%d other requests of this caller have not arrived in full yet", intakePerCaller).
			WithRetryAfter(time.Second)
	}
	i.part(caller, s)
	return nil, err
}

func (i *intake) join(caller string) *share {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.callers[caller]
	if s == nil {
		s = &share{slots: make(chan struct{}, intakePerCaller)}
		i.callers[caller] = s
	}
	s.users++
	return s
}

func (i *intake) part(caller string, s *share) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(i.callers, caller)
	}
}
