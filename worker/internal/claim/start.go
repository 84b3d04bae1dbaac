// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandboxes"
)

const (
	// maxStarts is how many sandboxes a claim without a key may get if they end before they run.
	maxStarts = 3
	// startReserve is the minimum time that a claim must have left to get another sandbox. Less is rarely enough for a swap.
	startReserve = 5 * time.Second
	// deadlineSlack allows for a caller that leaves because of the startup timeout a little before it, because the hub's began earlier.
	deadlineSlack = time.Second
)

// start waits until the sandbox of a claim without a key runs. If it ends before that through no fault of the request, and there is time,
// the claim gets another Pod, from its old place in the queue.
func (s *Service) start(ctx context.Context, o *op) (*sandboxv1.Sandbox, error) {
	for starts := 1; ; starts++ {
		record, err := s.sandboxes.AwaitRunning(ctx, o.id, o.deadline)
		if err == nil {
			return record, nil
		}
		err = s.giveUp(o, err)
		var failed *sandboxes.NotStartedError
		left := o.deadline.Sub(s.clock.Now())
		if ctx.Err() != nil || !errors.As(err, &failed) || !startsAnother(failedStart{failed.Record, starts, left}) {
			return nil, err
		}
		var next *op
		var nextErr error
		s.update(func(l locked) { next, nextErr = l.enterAgain(ctx, o) })
		if nextErr == nil {
			defer s.leave(next, &next.claim)
			nextErr = s.await(ctx, next)
		}
		switch {
		case nextErr == nil:
			o = next
		case disposition.Of(nextErr) == federationv1.Disposition_UNCLEAR:
			return nil, nextErr
		default: // none is idle; the last sandbox's error says more
			return nil, err
		}
	}
}

// enterAgain starts a claim once more, within the time that it has left.
func (l locked) enterAgain(caller context.Context, before *op) (*op, error) {
	c := before.claim
	c.IdleOnly = false // had a Pod, and keeps its place
	p := l.Pool(c.Pool)
	switch {
	case !serves(&l.View, &c):
		return nil, disposition.NotServing()
	case p == nil || p.Spec() == nil || p.Closing():
		return nil, disposition.Refuse(problem.NoCapacity, "pool %s is being removed", c.Pool.Name)
	}
	o, err := l.newOp(c, p)
	if err != nil {
		return nil, err
	}
	o.deadline, o.startup = before.deadline, before.startup-o.started.Sub(before.started)
	o.callers = before.callers
	l.lose(before)
	if o.queue == before.queue {
		o.keepPlace(&before.waiter)
	}
	l.launch(caller, o)
	return o, nil
}

// giveUp ends the sandbox of a claim without a key that did not see it running. The sandbox ends as Failed if the startup timeout has
// passed. giveUp returns the error for the caller.
func (s *Service) giveUp(o *op, err error) error {
	if s.clock.Since(o.started) < o.startup-deadlineSlack {
		s.sandboxes.Abandon(o.id)
		return err
	}
	end := sandbox.End{
		StopReason: v1alpha1.SandboxStopReasonFailed, Reason: sandboxes.StartupTimeout,
		Message: fmt.Sprintf("not running %s after it was requested", o.startup),
	}
	s.update(func(l locked) { s.sandboxes.Dispose(l.State, o.id, end) })
	if problem.FromError(err).Reason != problem.Deadline {
		return err // had ended before
	}
	late := problem.New(problem.Deadline, "sandbox %s ends as %s: %s: %s", o.id, end.StopReason, end.Reason, end.Message)
	return disposition.Doubtful(late)
}
