// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/hook"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/idle"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandboxes"
)

const (
	// DefaultStartupTimeout holds where neither the request nor the pool says anything.
	DefaultStartupTimeout = 2 * time.Minute
	// DefaultFirstActivityTimeout is that of claims without a key: no caller can ask again for what they were given.
	DefaultFirstActivityTimeout = 5 * time.Minute
	// maxTries is how many Pods one claim loses to other writers before it is refused.
	maxTries = 16
)

// Claim is a request for a sandbox of one pool.
type Claim struct {
	Request     *sandboxv1.CreateSandboxRequest // namespace, team and user resolved
	Pool        types.NamespacedName
	KeyHash     string // empty without a claim key
	Attempt     int32  // from 1 with a key
	Incarnation uint64 // the one that the caller believes in; 0 for any
	// Local is a claim of this worker's own API. Nobody takes it elsewhere, so a refusal is not held against its key.
	Local bool
}

// op is one claim being carried out, for one caller or, with a key, for all that ask for it.
type op struct {
	waiter
	claim    Claim
	queue    *queue
	id       string
	hooks    string // as they are written on the Pod
	startup  time.Duration
	timeouts idle.Timeouts
	started  time.Time // on the service's clock, as is deadline
	deadline time.Time

	cancel   context.CancelFunc
	canceled bool // by key, or its only caller left

	done chan struct{} // closed when err is set
	err  error
}

// Create carries out a claim. It returns when the sandbox is assigned, or with wait READY when it is running. The error is a
// *problem.Error; package disposition tells what it means.
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
	var err error
	s.update(func(l locked) { found, err = l.enter(ctx, c) })
	if err == nil && found.ended != "" {
		found.sandbox, err = s.recordFor(ctx, &c, found.ended)
	}
	if err != nil || found.sandbox != nil && found.sandbox.GetPhase() != sandboxv1.Phase_STARTING {
		return found.sandbox, err
	}
	id, until := found.sandbox.GetId(), s.clock.Now().Add(found.sandbox.GetStartupTimeout().AsDuration())
	if o := found.op; o != nil {
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
		return s.sandboxes.AwaitRunning(ctx, id, until)
	}
}

// checkRequest refuses what this worker can't do. What Kubernetes checks by itself, the API server refuses with the claim write.
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

// enter finds what the claim meets: a sandbox that is its result, an op to wait for, or a reason why not. An op outlives its
// caller, and belongs to the trace of the first one.
func (l locked) enter(caller context.Context, c Claim) (met, error) {
	if !serves(&l.View, &c) {
		return met{}, disposition.NotServing()
	}
	if c.KeyHash != "" {
		if found, err := l.meet(&c); found != (met{}) || err != nil {
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
		return met{}, err
	}
	o.queue.asked = o.started
	if callerDeadline, bounded := caller.Deadline(); bounded {
		// A context's deadline is of the system's clock.
		if left := o.started.Add(time.Until(callerDeadline)); left.Before(o.deadline) {
			o.deadline = left
		}
	}
	if c.KeyHash != "" {
		l.ops[c.KeyHash] = o
		if id, ok := l.unclear.Get(o.started, c.KeyHash); ok {
			l.Disown(id) // It has not appeared, so this claim takes its place. Should it appear now, it goes.
		}
	}
	l.launch(caller, o)
	return met{op: o}, nil
}

func (l locked) newOp(c Claim, p *inventory.Pool) (*op, error) {
	id, err := ulid.New(ulid.Timestamp(l.time.Now()), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("minting a sandbox id: %w", err)
	}
	hooks, err := hooksOf(c.Request)
	if err != nil {
		return nil, err
	}
	o := &op{
		claim: c, queue: l.queueOf(c.Pool), waiter: newWaiter(&c, p.Spec()), hooks: hooks,
		id:       strings.ToLower(id.String()) + "-" + l.clusterID,
		startup:  startupTimeout(c.Request, p.Spec()),
		timeouts: timeouts(&c, p.Spec()),
		started:  l.clock.Now(),
		done:     make(chan struct{}),
	}
	o.deadline = o.started.Add(o.startup)
	return o, nil
}

// startupTimeout is what the request says, else the pool, else the default.
func startupTimeout(r *sandboxv1.CreateSandboxRequest, spec *v1alpha1.SandboxPoolSpec) time.Duration {
	if d := r.GetStartupTimeout().AsDuration(); d > 0 {
		return d
	}
	if d := spec.DefaultStartupTimeout; d != nil && d.Duration > 0 {
		return d.Duration
	}
	return DefaultStartupTimeout
}

// timeouts is what a claim writes: what the request says, else the pool, else the default.
func timeouts(c *Claim, spec *v1alpha1.SandboxPoolSpec) idle.Timeouts {
	r := c.Request
	t := idle.Timeouts{
		Idle: r.GetIdleTimeout().AsDuration(), Lifetime: r.GetMaxLifetime().AsDuration(),
		FirstActivity: r.GetFirstActivityTimeout().AsDuration(),
	}
	if d := spec.DefaultIdleTimeout; r.GetIdleTimeout() == nil && d != nil {
		t.Idle = d.Duration
	}
	if r.GetFirstActivityTimeout() == nil && c.KeyHash == "" {
		t.FirstActivity = DefaultFirstActivityTimeout
	}
	return t
}

// hooksOf are the hooks of a request that was checked, as they are written on a Pod.
func hooksOf(r *sandboxv1.CreateSandboxRequest) (string, error) {
	actions, faults := hook.Parse(r.GetPostStartHooks())
	if len(faults) > 0 {
		return "", disposition.Fault(problem.InvalidFields(faults...))
	}
	return hook.Encode(actions)
}

// launch has an op carried out.
func (l locked) launch(caller context.Context, o *op) {
	ctx, cancel := context.WithCancel(telemetry.Adopt(l.Leading(), caller))
	o.cancel = cancel
	s := l.Service
	l.Begin(func() { s.carry(ctx, o) })
}

// carry brings an op to its end, which wakes whoever waits for it.
func (s *Service) carry(ctx context.Context, o *op) {
	defer o.cancel()
	err := s.obtain(ctx, o)
	s.update(func(l locked) {
		if l.ops[o.claim.KeyHash] == o {
			delete(l.ops, o.claim.KeyHash)
		}
		if err == nil && o.canceled {
			// The cancel came while the Pod was being written.
			end := sandboxes.Canceled("Canceled", "the claim was canceled before it was answered")
			s.sandboxes.Dispose(l.State, o.id, end)
			err = disposition.Refuse(problem.NoCapacity, "the claim was canceled")
		}
		if disposition.Refused(err) && o.claim.KeyHash != "" && !o.claim.Local {
			l.rememberRefusal(o.claim.KeyHash, o.claim.Attempt, err)
		}
		o.err = err
		close(o.done)
	})
}

// obtain gets a Pod written. It loses Pods to other writers and keeps its place in the queue.
func (s *Service) obtain(ctx context.Context, o *op) error {
	for range maxTries {
		hold, err := s.acquire(ctx, o)
		if err != nil {
			return err
		}
		taken, err := s.take(ctx, o, hold)
		if err != nil {
			return err
		}
		if taken {
			s.metrics.queue.Observe(s.clock.Since(o.started).Seconds())
			return nil
		}
	}
	return disposition.Refuse(problem.NoCapacity, "pool %s: %d Pods were lost to other writers", o.claim.Pool.Name, maxTries)
}

// await waits for an op. A caller who leaves takes an op without a key along; one with a key goes on for whoever asks again.
func (s *Service) await(ctx context.Context, o *op) error {
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
	}
	if o.claim.KeyHash != "" {
		return disposition.Doubt("the claim goes on; the same call with the same claimKey joins it")
	}
	s.update(func(l locked) {
		select {
		case <-o.done:
			if o.err == nil {
				s.sandboxes.Dispose(l.State, o.id, sandboxes.Abandoned())
			}
		default:
			l.abort(o)
		}
	})
	return disposition.Refuse(problem.Deadline, "the caller did not wait")
}

// abort ends an op that waits, and has the sandbox of one that is being written disposed of.
func (l locked) abort(o *op) {
	o.canceled = true
	o.cancel()
}

// recordFor returns the record of the sandbox that ended under a claim's key.
func (s *Service) recordFor(ctx context.Context, c *Claim, id string) (*sandboxv1.Sandbox, error) {
	record, err := s.sandboxes.Recorded(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case record == nil:
		return nil, disposition.Doubt("the record of the claim key's sandbox was dropped just now")
	case !isOf(c.Request, record):
		return record, conflict(c)
	}
	return record, nil
}
