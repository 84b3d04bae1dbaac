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
	Request     *sandboxv1.CreateSandboxRequest // namespace, team and user resolved
	Pool        types.NamespacedName
	KeyHash     string // empty without a claim key
	Attempt     int32  // from 1 with a key
	Proof       string // the hub's, that it sent this attempt of the key here
	Incarnation uint64 // that the caller expects; 0 for any
	// Patience bounds the claim together with its startup timeout; 0 does not. A caller that leaves later than that is told what
	// the claim waited for.
	Patience time.Duration
	// Local is a claim of this worker's own API. No hub takes it to another cluster, so a refusal is not remembered for its key.
	Local bool
	// IdleOnly is a claim that its caller takes elsewhere if no Pod is idle: it does not wait. A claim of the same attempt that waits
	// already goes on.
	IdleOnly bool
	// Prepares is a claim whose caller prepares the sandbox before it is used; see sandboxes.Service.Prepared.
	Prepares bool
	// Belongings names what the caller gives to the sandbox's daemon later, and Request does not have.
	Belongings []string
}

// Create carries out a claim. It returns when the sandbox is assigned, or with wait READY when it is running. The error is a
// *problem.Error; package disposition returns what it means.
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
	var found met
	var starts *queue // of a sandbox that starts and has no op any more, which counts this call
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
		return told(s.sandboxes.AwaitRunning(ctx, id, until))
	}
}

// leave is called when a call that waited for a claim returns.
func (s *Service) leave(o *op, c *Claim) {
	if !c.Local {
		s.update(func(l locked) { l.call(o, -1) })
	}
}

// told returns the end of a key's sandbox as each later call gets it: its record, unless only a person can cure the cause.
func told(record *sandboxv1.Sandbox, err error) (*sandboxv1.Sandbox, error) {
	var failed *sandboxes.NotStartedError
	if errors.As(err, &failed) && failed.Record != nil && outcome.Refusal(failed.Record) == nil {
		return failed.Record, nil
	}
	return record, err
}

// checkRequest refuses what this worker does not support. What Kubernetes validates, the API server refuses with the claim write.
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

// enter returns what the claim meets: a sandbox that is its result, an op to wait for, or an error. An op outlives its caller,
// and belongs to the trace of the first one.
func (l locked) enter(caller context.Context, c Claim) (met, error) {
	if !serves(&l.View, &c) {
		return met{}, disposition.NotServing()
	}
	if c.KeyHash != "" {
		found, err := l.meet(&c)
		if c.Local && found == (met{}) && err == nil {
			found, err = l.meetHubs(&c)
		}
		if found != (met{}) || err != nil {
			return found, err
		}
	}
	p := l.Pool(c.Pool)
	switch {
	case p == nil || p.Spec() == nil:
		there := l.PoolNames(c.Pool.Namespace)
		return met{}, disposition.Refuse(problem.NotFound, "there is no pool %s; there are: %s", c.Pool, there)
	case p.Closing():
		return met{}, disposition.Refuse(problem.NoCapacity, "pool %s is being removed", c.Pool.Name)
	}
	o, err := l.newOp(c, p)
	if err != nil {
		if disposition.Refused(err) && c.KeyHash != "" && !c.Local {
			l.rememberRefusal(c.KeyHash, c.Attempt, err)
		}
		return met{}, err
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
			l.Disown(id) // It has not appeared, so this claim replaces it. If it appears now, it ends.
		}
	}
	l.launch(caller, o)
	return met{op: o}, nil
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
