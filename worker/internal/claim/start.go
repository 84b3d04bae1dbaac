// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/worker/internal/await"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// maxStarts is how many sandboxes a claim without a key is given that end before they run.
	maxStarts = 3
	// startReserve is what a claim has left at least when it is given another one: less is rarely enough for a swap.
	startReserve = 5 * time.Second
)

// start sees the sandbox of a claim without a key running. If it ends before that by no fault of the request's, and there is
// time, the claim gets another Pod, from the place in the queue that it had.
func (s *Service) start(ctx context.Context, o *op) (*sandboxv1.Sandbox, error) {
	for starts := 1; ; starts++ {
		record, err := s.awaitRunning(ctx, o.id, o.deadline)
		if err == nil {
			return record, nil
		}
		err = s.giveUp(o, err)
		var failed *notStarted
		left := o.deadline.Sub(s.opts.Clock.Now())
		if ctx.Err() != nil || !errors.As(err, &failed) || !startsAnother(failedStart{failed.record, starts, left}) {
			return nil, err
		}
		next, nextErr := s.enterAgain(ctx, o)
		if nextErr == nil {
			nextErr = s.await(ctx, next)
		}
		switch {
		case nextErr == nil:
			o = next
		case Disposition(nextErr) == federationv1.Disposition_UNCLEAR:
			return nil, nextErr
		default: // there is none: why the one before did not run says more
			return nil, err
		}
	}
}

// enterAgain has a claim carried out once more, in what is left of its time.
func (s *Service) enterAgain(caller context.Context, before *op) (*op, error) {
	s.mu.Lock()
	defer s.unlock()
	c := before.claim
	p := s.pools[c.Pool]
	switch {
	case !s.servesLocked(&c):
		return nil, notServing()
	case p == nil || p.spec == nil || p.closing:
		return nil, refuse(problem.NoCapacity, "pool %s is being removed", c.Pool.Name)
	}
	o, err := s.newOp(c, p)
	if err != nil {
		return nil, err
	}
	o.deadline, o.startup = before.deadline, before.startup-o.started.Sub(before.started)
	if p == before.pool {
		o.ticket, o.turn = before.ticket, before.turn
	}
	s.launch(caller, o)
	return o, nil
}

// notStarted is the error of a sandbox that ended before it ran.
type notStarted struct {
	error
	record *sandboxv1.Sandbox
}

func (n *notStarted) Unwrap() error { return n.error }

// awaitRunning waits until a sandbox can be used, or has ended, or time is up. One that runs when time is up is answered as
// well: it has started, and what keeps it from being ready will pass.
func (s *Service) awaitRunning(ctx context.Context, id string, deadline time.Time) (_ *sandboxv1.Sandbox, err error) {
	ctx, span := telemetry.Start(ctx, "start")
	defer func() { telemetry.End(span, err) }()
	var record *sandboxv1.Sandbox
	var failed error
	err = s.waits.NewReady(id).Wait(ctx, await.Question{
		Within: deadline.Sub(s.opts.Clock.Now()),
		Done: func() (bool, error) {
			var ready sandbox.Readiness
			if record, ready = s.look(id); record == nil {
				var err error
				if record, err = s.recorded(ctx, id); err != nil {
					failed = err
					return true, nil
				}
			}
			switch record.GetPhase() {
			case sandboxv1.Phase_RUNNING:
				return ready.OK(), nil
			case sandboxv1.Phase_STARTING:
				return false, nil
			}
			failed = &notStarted{startFailure(id, record), record}
			return true, nil
		},
		Live: func(ctx context.Context) error { return s.refresh(ctx, id) },
	})
	switch {
	case failed != nil:
		return nil, failed
	case err == nil:
		return record, nil
	}
	if record, _ = s.look(id); record.GetPhase() == sandboxv1.Phase_RUNNING {
		return record, nil
	}
	return nil, late(id, record)
}

// look answers a sandbox that is on a Pod, and whether it can be used.
func (s *Service) look(id string) (*sandboxv1.Sandbox, sandbox.Readiness) {
	s.mu.Lock()
	defer s.unlock()
	if e := s.byID[id]; e != nil {
		return s.show(e), sandbox.Ready(e.pod)
	}
	return s.showLocked(id), sandbox.NotRunning
}

func late(id string, record *sandboxv1.Sandbox) error {
	e := problem.New(problem.Deadline, "sandbox %s was assigned and is not running yet", id)
	if record.GetClaimKey() != "" {
		e.Message += "; the same call with the same claimKey asks for it again"
	}
	return doubtful(e)
}

// startFailure tells why a sandbox ended before it ran. An image that cannot be had is the request's fault.
func startFailure(id string, record *sandboxv1.Sandbox) error {
	if reason := record.GetFailureReason(); badImage(reason) {
		e := problem.InvalidField("image", record.GetImage(), "an image that the cluster can pull")
		e.Message = fmt.Sprintf("sandbox %s did not start: %s: %s", id, reason, record.GetFailureMessage())
		return fault(e)
	}
	why := []string{record.GetStopReason(), record.GetFailureReason(), record.GetFailureMessage()}
	why = slices.DeleteFunc(why, func(s string) bool { return s == "" })
	if len(why) == 0 {
		why = append(why, "its Pod is being deleted")
	}
	return fault(problem.New(problem.Unavailable, "sandbox %s ended before it ran: %s", id, strings.Join(why, ": ")))
}

// startupTimeout is the failure reason of a sandbox that took too long to start, here and in package pool.
const startupTimeout = "StartupTimeout"

// deadlineSlack is how much before a startup timeout its caller may leave because of it: the hub's began earlier.
const deadlineSlack = time.Second

// giveUp ends a sandbox without a key that its claim has not seen running: as failed where it has had all its time. It
// answers what the caller is told.
func (s *Service) giveUp(o *op, err error) error {
	id := o.id
	if s.opts.Clock.Since(o.started) < o.startup-deadlineSlack {
		s.Abandon(id)
		return err
	}
	s.mu.Lock()
	defer s.unlock()
	end := sandbox.End{
		StopReason: v1alpha1.SandboxStopReasonFailed, Reason: startupTimeout,
		Message: fmt.Sprintf("not running %s after it was asked for", o.startup),
	}
	s.spawnDispose(id, end)
	if problem.FromError(err).Reason != problem.Deadline {
		return err // it had ended before
	}
	return doubtful(problem.New(problem.Deadline, "sandbox %s ends as %s: %s: %s", id, end.StopReason, end.Reason, end.Message))
}
