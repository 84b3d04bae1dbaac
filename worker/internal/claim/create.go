// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"container/list"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/hook"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/worker/internal/idle"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// DefaultStartupTimeout holds where neither the request nor the pool says anything.
	DefaultStartupTimeout = 2 * time.Minute
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
	claim    Claim
	pool     *pool
	image    string
	hooks    string // as they are written on the Pod
	id       string
	startup  time.Duration
	timeouts idle.Timeouts
	deadline time.Time // on the service's clock
	started  time.Time

	tenant  tenant
	ticket  uint64        // of its coming
	turn    uint64        // in which it got a Pod
	line    *line         // while it waits
	place   *list.Element // among those that had no Pod yet
	index   int           // among the others
	handed  chan *entry   // a Pod for a claim that waits
	refused chan error    // why it waits in vain

	cancel   context.CancelFunc
	canceled bool // by key, or its only caller left

	done chan struct{} // closed when the fields below are set
	err  error
}

// Create carries out a claim. It returns when the sandbox is assigned, or with wait READY when it is running. The error
// is a *problem.Error; Disposition tells what it means.
func (s *Service) Create(ctx context.Context, c Claim) (*sandboxv1.Sandbox, error) {
	start := s.opts.Clock.Now()
	record, err := s.create(ctx, c)
	s.metrics.claimed(s.opts.Clock.Since(start), err)
	return record, err
}

func (s *Service) create(ctx context.Context, c Claim) (*sandboxv1.Sandbox, error) {
	if err := checkRequest(&c); err != nil {
		return nil, err
	}
	o, settled, err := s.enter(ctx, c)
	if err == nil && settled == nil && o == nil {
		settled, err = s.recordFor(ctx, &c)
	}
	if err != nil || settled != nil && settled.GetPhase() != sandboxv1.Phase_STARTING {
		return settled, err
	}
	id, until := settled.GetId(), s.opts.Clock.Now().Add(settled.GetStartupTimeout().AsDuration())
	if o != nil {
		if err := s.await(ctx, o); err != nil {
			return nil, err
		}
		id, until = o.id, o.deadline
	}
	switch c.Request.GetWait() {
	case sandboxv1.CreateSandboxRequest_ASSIGNED, sandboxv1.CreateSandboxRequest_NONE:
		record, _, err := s.get(ctx, id)
		return record, err
	}
	if c.KeyHash == "" {
		return s.start(ctx, o)
	}
	return s.awaitRunning(ctx, id, until)
}

// recordFor answers the record of the sandbox that ended under a claim's key.
func (s *Service) recordFor(ctx context.Context, c *Claim) (*sandboxv1.Sandbox, error) {
	s.mu.Lock()
	id, _ := s.endedUnder(c.KeyHash)
	s.unlock()
	record, err := s.recorded(ctx, id)
	if err == nil && record == nil {
		err = doubt("the record of the claim key's sandbox was dropped just now")
	}
	if err != nil {
		return nil, err
	}
	return record, conflict(c, record)
}

// enter finds what the claim meets: a sandbox that is its answer, an op to wait for, or a reason why not; nothing where the
// answer is a record. An op outlives its caller, and belongs to the trace of the first one.
func (s *Service) enter(caller context.Context, c Claim) (*op, *sandboxv1.Sandbox, error) {
	s.mu.Lock()
	defer s.unlock()
	if !s.servesLocked(&c) {
		return nil, nil, notServing()
	}
	if c.KeyHash != "" {
		if found, err := s.meet(&c); found != (met{}) || err != nil {
			return found.op, found.sandbox, err
		}
	}
	p := s.pools[c.Pool]
	switch {
	case p == nil || p.spec == nil:
		return nil, nil, refuse(problem.NotFound, "there is no pool %s; there are: %s", c.Pool, s.poolNames(c.Pool.Namespace))
	case p.closing:
		return nil, nil, refuse(problem.NoCapacity, "pool %s is being removed", c.Pool.Name)
	}
	o, err := s.newOp(c, p)
	if err != nil {
		return nil, nil, err
	}
	p.asked = o.started
	if callerDeadline, bounded := caller.Deadline(); bounded {
		if left := o.started.Add(time.Until(callerDeadline)); left.Before(o.deadline) {
			o.deadline = left
		}
	}
	if c.KeyHash != "" {
		s.ops[c.KeyHash] = o
		if id, ok := s.unclear.get(o.started, c.KeyHash); ok {
			// It has not appeared, so this claim takes its place. Should it appear now, it goes.
			s.strays.put(o.started, id, struct{}{})
		}
	}
	s.launch(caller, o)
	return o, nil, nil
}

// launch has an op carried out. The lock is held.
func (s *Service) launch(caller context.Context, o *op) {
	ctx, cancel := context.WithCancel(telemetry.Adopt(s.leading, caller))
	o.cancel = cancel
	s.begin(func() { s.carry(ctx, o) })
}

// poolNames lists the pools of a namespace, for an error that tells what there is. The lock is held.
func (s *Service) poolNames(namespace string) string {
	var names []string
	for key, p := range s.pools {
		if key.Namespace == namespace && p.spec != nil {
			names = append(names, key.Name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func (s *Service) newOp(c Claim, p *pool) (*op, error) {
	id, err := ulid.New(ulid.Timestamp(s.opts.Time.Now()), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("minting a sandbox id: %w", err)
	}
	o := &op{
		claim: c, pool: p,
		tenant:  tenant{c.Request.GetTeam(), c.Request.GetUser()},
		image:   c.Request.GetImage(),
		id:      strings.ToLower(id.String()) + "-" + s.opts.ClusterID,
		startup: c.Request.GetStartupTimeout().AsDuration(),
		started: s.opts.Clock.Now(),
		handed:  make(chan *entry, 1), refused: make(chan error, 1), done: make(chan struct{}),
	}
	if o.image == "" {
		o.image = sandbox.DefaultImage(p.spec)
	}
	if o.startup <= 0 {
		o.startup = DefaultStartupTimeout
		if d := p.spec.DefaultStartupTimeout; d != nil && d.Duration > 0 {
			o.startup = d.Duration
		}
	}
	if o.hooks, err = hooksOf(c.Request); err != nil {
		return nil, err
	}
	o.timeouts = resolveTimeouts(&c, p.spec)
	o.deadline = o.started.Add(o.startup)
	return o, nil
}

// carry brings an op to its end, and whoever waits for it hears of it.
func (s *Service) carry(ctx context.Context, o *op) {
	defer o.cancel()
	err := s.obtain(ctx, o)
	s.mu.Lock()
	defer s.unlock()
	if s.ops[o.claim.KeyHash] == o {
		delete(s.ops, o.claim.KeyHash)
	}
	if err == nil && o.canceled {
		// The cancel came while the Pod was being written.
		s.spawnDispose(o.id, canceledEnd("Canceled", "the claim was canceled before it was answered"))
		err = refuse(problem.NoCapacity, "the claim was canceled")
	}
	if err != nil && isRefusal(err) && o.claim.KeyHash != "" && !o.claim.Local {
		s.rememberRefusal(o.claim.KeyHash, o.claim.Attempt, err)
	}
	o.err = err
	close(o.done)
	s.sweepPool(o.pool)
}

// obtain gets a Pod written. It loses Pods to other writers and keeps its place in the queue.
func (s *Service) obtain(ctx context.Context, o *op) error {
	for range maxTries {
		e, err := s.acquire(ctx, o)
		if err != nil {
			return err
		}
		taken, err := s.take(ctx, o, e)
		if err != nil {
			return err
		}
		if taken {
			s.metrics.queued(o.started, s.opts.Clock)
			return nil
		}
	}
	return refuse(problem.NoCapacity, "pool %s: %d Pods were lost to other writers", o.claim.Pool.Name, maxTries)
}

// await waits for an op. A caller who leaves takes an op without a key along; one with a key goes on for whoever asks
// again.
func (s *Service) await(ctx context.Context, o *op) error {
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
	}
	if o.claim.KeyHash != "" {
		return doubt("the claim goes on; the same call with the same claimKey joins it")
	}
	s.mu.Lock()
	defer s.unlock()
	select {
	case <-o.done:
		if o.err == nil {
			s.spawnAbandon(o.id)
		}
	default:
		s.cancelOp(o)
	}
	return refuse(problem.Deadline, "the caller did not wait")
}

// cancelOp ends an op that waits, and has one released that is being written. The lock is held.
func (s *Service) cancelOp(o *op) {
	o.canceled = true
	o.cancel()
}

// hooksOf are the hooks of a request that was checked, as they are written on a Pod.
func hooksOf(r *sandboxv1.CreateSandboxRequest) (string, error) {
	actions, faults := hook.Parse(r.GetPostStartHooks())
	if len(faults) > 0 {
		return "", fault(problem.InvalidFields(faults...))
	}
	return hook.Encode(actions)
}

// checkRequest refuses what this worker can't do. What Kubernetes checks by itself, the API server refuses with the
// claim write.
func checkRequest(c *Claim) error {
	r := c.Request
	for key := range r.GetLabels() {
		if sandbox.Reserved(key) {
			return fault(problem.InvalidField("labels", key, "keys outside agentbox.navix.sh, agentbox.io, agents.navix.sh and scheduling.navix.sh"))
		}
	}
	if faults := validate.Timeouts(r); len(faults) > 0 {
		return fault(problem.InvalidFields(faults...))
	}
	if faults := hook.Faults(r.GetPostStartHooks()); len(faults) > 0 {
		return fault(problem.InvalidFields(faults...))
	}
	return nil
}
