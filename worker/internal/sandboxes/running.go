// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"cmp"
	"context"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandbox"
)

// StartupTimeout is the failure reason of a sandbox that took too long to start. Package pool uses it as well.
const StartupTimeout = "StartupTimeout"

// NotStartedError is the error of a sandbox that ended before it ran.
type NotStartedError struct {
	error
	Record *sandboxv1.Sandbox
}

func (n *NotStartedError) Unwrap() error { return n.error }

// AwaitRunning waits until a sandbox can be used, has ended, or the deadline passes. It also returns a sandbox that runs at the deadline
// without being ready: it has started, and the cause will pass.
func (s *Service) AwaitRunning(ctx context.Context, id string, deadline time.Time) (record *sandboxv1.Sandbox, err error) {
	ctx, span := telemetry.Start(ctx, "start")
	defer func() { telemetry.End(span, err) }()
	var watched *watch
	s.update(func(l locked) {
		if watched, err = l.join(id, ready); err != nil {
			record, _ = s.look(&l.View, id) // it is being paused or resumed
		}
	})
	if watched != nil {
		defer s.update(func(l locked) { l.leave(id, watched) })
		var failed error
		err = s.wait(ctx, id, watched, deadline.Sub(s.clock.Now()), func() (done bool, err error) {
			record, done, failed = s.started(ctx, id)
			return done, nil
		})
		if err == nil {
			return record, failed
		}
		s.update(func(l locked) { record, _ = s.look(&l.View, id) })
	}
	if outcome.Started(record) {
		return record, nil
	}
	return nil, late(id, record)
}

// started reports whether a start needs no more waiting.
func (s *Service) started(ctx context.Context, id string) (record *sandboxv1.Sandbox, done bool, err error) {
	var ready bool
	s.inventory.View(func(v *inventory.View) { record, ready = s.look(v, id) })
	if record == nil {
		if record, err = s.Recorded(ctx, id); err != nil {
			return nil, true, err
		}
	}
	switch {
	case outcome.Started(record):
		return record, ready, nil
	case record.GetPhase() == sandboxv1.Phase_STARTING:
		return record, false, nil
	default:
		return nil, true, &NotStartedError{startFailure(id, record), record}
	}
}

// look returns a sandbox that is on a Pod, and whether it can be used.
func (s *Service) look(v *inventory.View, id string) (*sandboxv1.Sandbox, bool) {
	if p := v.Sandbox(id); p != nil {
		return s.Show(p), sandbox.Ready(p.Object()).OK()
	}
	return nil, false
}

func late(id string, record *sandboxv1.Sandbox) error {
	e := problem.New(problem.Deadline, "sandbox %s was assigned and is not running yet", id)
	if record.GetClaimKey() != "" {
		e.Message += "; the same call with the same claimKey asks for it again"
	}
	return disposition.Doubtful(e)
}

// startFailure returns the error for a sandbox that ended before it ran. If its startup timeout passed, that is DEADLINE; because the pool
// and the claim both end it then, and whichever is first must not decide what the caller is told.
func startFailure(id string, record *sandboxv1.Sandbox) error {
	if e := outcome.Refusal(record); e != nil {
		return disposition.Fault(e)
	}
	why := cmp.Or(outcome.Cause(record), "its Pod is being deleted")
	reason := problem.Unavailable
	if record.GetFailureReason() == StartupTimeout {
		reason = problem.Deadline
	}
	return disposition.Fault(problem.New(reason, "sandbox %s ended before it ran: %s", id, why))
}
