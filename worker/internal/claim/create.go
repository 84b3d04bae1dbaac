// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/hook"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/sandboxes"
)

// Claim is a request for a sandbox of one pool.
type Claim struct {
	Request     *sandboxv1.CreateSandboxRequest // with namespace, team and user resolved
	Pool        types.NamespacedName
	KeyHash     string // empty without a claim key
	Attempt     int32  // from 1 with a key
	Proof       string // the hub's proof that it sent this attempt of the key here
	Incarnation uint64 // the one that the caller expects; 0 for any
	// Patience bounds the claim, as does its startup timeout. 0 sets no bound. A caller that waits longer gets an error that says what the
	// claim waited for.
	Patience time.Duration
	// Local marks a claim of this worker's own API. No hub takes it to another cluster, so a refusal is not remembered for its key.
	Local bool
	// IdleOnly marks a claim that its caller takes elsewhere if no Pod is idle: it does not wait. It joins a claim of the same attempt that
	// already waits.
	IdleOnly bool
	// Prepares marks a claim whose caller prepares the sandbox before it is used; see sandboxes.Service.Prepared.
	Prepares bool
	// Belongings names the fields that the caller passes to the sandbox's daemon later, and that Request lacks.
	Belongings []string
}

// Create carries out a claim. It returns when the sandbox is assigned, or with wait READY when it is running. The error is a
// *problem.Error; package disposition maps it to what the hub may do next.
func (s *Service) Create(ctx context.Context, c Claim) (*sandboxv1.Sandbox, error) {
	start := s.clock.Now()
	record, err := s.create(ctx, c)
	s.metrics.claimed(s.clock.Since(start), err)
	return record, err
}

func (s *Service) create(ctx context.Context, c Claim) (*sandboxv1.Sandbox, error) {
	if err := checkRequest(&c); err != nil {
		return nil, err
	}
	var found existing
	var starts *queue // of a starting sandbox without an op; counts this call
	var err error
	s.update(func(l locked) {
		found, err = l.enter(ctx, c)
		switch {
		case err != nil || c.Local:
		case found.op != nil:
			l.call(found.op, 1)
		case found.sandbox.GetPhase() == sandboxv1.Phase_STARTING && l.Pool(c.Pool) != nil:
			starts = l.queueOf(c.Pool)
			l.count(starts, 1)
		}
	})
	if starts != nil {
		defer s.update(func(l locked) { l.count(starts, -1) })
	}
	if err == nil && found.ended != "" {
		found.sandbox, err = s.recordFor(ctx, &c, found.ended)
	}
	if err != nil || found.sandbox != nil && found.sandbox.GetPhase() != sandboxv1.Phase_STARTING {
		return found.sandbox, err
	}
	id, until := found.sandbox.GetId(), s.clock.Now().Add(found.sandbox.GetStartupTimeout().AsDuration())
	if o := found.op; o != nil {
		defer s.leave(o, &c)
		if err := s.await(ctx, o); err != nil {
			return nil, err
		}
		id, until = o.id, o.deadline
	}
	switch wait := c.Request.GetWait(); {
	case wait == sandboxv1.CreateSandboxRequest_ASSIGNED, wait == sandboxv1.CreateSandboxRequest_NONE:
		return s.sandboxes.Find(ctx, id)
	case c.KeyHash == "":
		return s.start(ctx, found.op)
	default:
		return recordOrError(s.sandboxes.AwaitRunning(ctx, id, until))
	}
}

// leave stops counting a call that waited for a claim.
func (s *Service) leave(o *op, c *Claim) {
	if !c.Local {
		s.update(func(l locked) { l.call(o, -1) })
	}
}

// recordOrError returns the record of a key's sandbox that ended before it ran. If only a person can fix the cause, it returns the error.
func recordOrError(record *sandboxv1.Sandbox, err error) (*sandboxv1.Sandbox, error) {
	var failed *sandboxes.NotStartedError
	if errors.As(err, &failed) && failed.Record != nil && outcome.Refusal(failed.Record) == nil {
		return failed.Record, nil
	}
	return record, err
}

// checkRequest refuses requests that this worker does not support. The API server validates the rest with the claim's write.
func checkRequest(c *Claim) error {
	r := c.Request
	if faults := append(validate.Labels(r.GetLabels()), validate.Timeouts(r)...); len(faults) > 0 {
		return disposition.Fault(problem.InvalidFields(faults...))
	}
	if faults := hook.Faults(r.GetPostStartHooks()); len(faults) > 0 {
		return disposition.Fault(problem.InvalidFields(faults...))
	}
	return nil
}

// enter returns the sandbox that is the claim's result, an op to wait for, or an error. An op does not run in its caller's context, and
// belongs to the trace of its first caller.
func (l locked) enter(caller context.Context, c Claim) (existing, error) {
	if !serves(&l.View, &c) {
		return existing{}, disposition.NotServing()
	}
	if c.KeyHash != "" {
		found, err := l.resolveKey(&c)
		if c.Local && found == (existing{}) && err == nil {
			found, err = l.resolveHubKey(&c)
		}
		if found != (existing{}) || err != nil {
			return found, err
		}
	}
	p := l.Pool(c.Pool)
	switch {
	case p == nil || p.Spec() == nil:
		there := l.PoolNames(c.Pool.Namespace)
		return existing{}, disposition.Refuse(problem.NotFound, "there is no pool %s; there are: %s", c.Pool, there)
	case p.Closing():
		return existing{}, disposition.Refuse(problem.NoCapacity, "pool %s is being removed", c.Pool.Name)
	}
	o, err := l.newOp(c, p)
	if err != nil {
		if disposition.Refused(err) && c.KeyHash != "" && !c.Local {
			l.rememberRefusal(c.KeyHash, c.Attempt, err)
		}
		return existing{}, err
	}
	o.queue.asked = o.started
	if c.Patience > 0 {
		o.deadline = o.started.Add(min(o.startup, c.Patience))
	}
	if left, bounded := wallclock.Left(caller); bounded && o.started.Add(left).Before(o.deadline) {
		o.deadline = o.started.Add(left)
	}
	if c.KeyHash != "" {
		l.ops[c.KeyHash] = o
		if id, ok := l.unclear.Get(o.started, c.KeyHash); ok {
			l.Disown(id) // It has not appeared, so this claim replaces it. If it appears later, it ends.
		}
	}
	l.launch(caller, o)
	return existing{op: o}, nil
}

// recordFor returns the record of the sandbox that ended under a claim's key.
func (s *Service) recordFor(ctx context.Context, c *Claim, id string) (*sandboxv1.Sandbox, error) {
	record, err := s.sandboxes.Recorded(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case record == nil:
		return nil, disposition.Doubt("the record of the claim key's sandbox was dropped just now")
	}
	if differ := differing(c.Request, record); len(differ) > 0 {
		return record, conflict(c, differ...)
	}
	return record, nil
}
