// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"container/list"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
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
	id       string
	startup  time.Duration
	idle     time.Duration
	deadline time.Time // on the service's clock
	started  time.Time

	ticket  uint64
	waiting *list.Element
	handed  chan *entry // a Pod for a claim that waits
	refused chan error  // why it waits in vain

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
	deadline, bounded := ctx.Deadline()
	o, settled, err := s.enter(c, deadline, bounded)
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
		return s.Get(ctx, id)
	}
	record, err := s.awaitRunning(ctx, id, until)
	if err != nil && c.KeyHash == "" {
		s.abandon(id)
	}
	return record, err
}

// enter finds what the claim meets: a sandbox that is its answer, an op to wait for, or a reason why not.
func (s *Service) enter(c Claim, callerDeadline time.Time, bounded bool) (*op, *sandboxv1.Sandbox, error) {
	s.mu.Lock()
	defer s.unlock()
	if !s.servingLocked() || c.Incarnation != 0 && c.Incarnation != s.incarnation {
		return nil, nil, notServing()
	}
	if c.KeyHash != "" {
		if o, settled, err := s.meet(&c); o != nil || settled != nil || err != nil {
			return o, settled, err
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
	if bounded {
		if left := o.started.Add(time.Until(callerDeadline)); left.Before(o.deadline) {
			o.deadline = left
		}
	}
	if c.KeyHash != "" {
		s.ops[c.KeyHash] = o
	}
	ctx, cancel := context.WithCancel(s.leading)
	o.cancel = cancel
	s.work.Go(func() { s.carry(ctx, o) })
	return o, nil, nil
}

func (s *Service) newOp(c Claim, p *pool) (*op, error) {
	id, err := ulid.New(ulid.Timestamp(s.opts.Time.Now()), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("minting a sandbox id: %w", err)
	}
	o := &op{
		claim: c, pool: p,
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
	if d := p.spec.DefaultIdleTimeout; d != nil {
		o.idle = d.Duration
	}
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
		id := o.id
		s.spawn(func(ctx context.Context) {
			s.dispose(ctx, id, canceledEnd("Canceled", "the claim was canceled before it was answered"))
		})
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

// acquire gets an idle Pod, waiting for one if it must.
func (s *Service) acquire(ctx context.Context, o *op) (*entry, error) {
	e, err := s.acquireNow(o)
	if e != nil || err != nil {
		return e, err
	}
	timer := s.opts.Clock.NewTimer(o.deadline.Sub(s.opts.Clock.Now()))
	defer timer.Stop()
	select {
	case e := <-o.handed:
		return e, nil
	case err := <-o.refused:
		return nil, err
	case <-timer.C():
		err = refuse(problem.Deadline, "no Pod of pool %s became idle in time", o.claim.Pool.Name)
	case <-ctx.Done():
		err = refuse(problem.NoCapacity, "the claim was canceled while it waited for a Pod")
	}
	return s.stopWaiting(o, err)
}

// acquireNow takes an idle Pod, or puts the claim into the queue: then it returns neither Pod nor error.
func (s *Service) acquireNow(o *op) (*entry, error) {
	s.mu.Lock()
	defer s.unlock()
	p, name := o.pool, o.claim.Pool.Name
	switch {
	case o.canceled || s.leading == nil:
		return nil, refuse(problem.NoCapacity, "the claim was canceled")
	case p.closing:
		return nil, refuse(problem.NoCapacity, "pool %s is being removed", name)
	}
	again := o.ticket != 0
	p.waiting.number(o)
	if p.waiting.first(o) {
		if e := p.idle.pop(o.image); e != nil {
			e.taken = true
			s.touch(p)
			return e, nil
		}
	}
	switch {
	case o.claim.Request.GetNoQueue():
		return nil, refuse(problem.NoCapacity, "pool %s has no idle Pod", name)
	case !again && p.waiting.len() >= int(s.opts.QueueCapacity):
		return nil, refuse(problem.QueueFull, "pool %s: %d claims are waiting already", name, p.waiting.len())
	case !s.opts.Clock.Now().Before(o.deadline):
		return nil, refuse(problem.Deadline, "no Pod of pool %s became idle in time", name)
	}
	p.waiting.add(o)
	s.touch(p)
	return nil, nil
}

// stopWaiting leaves the queue, unless a Pod was handed over at the last moment.
func (s *Service) stopWaiting(o *op, err error) (*entry, error) {
	s.mu.Lock()
	defer s.unlock()
	select {
	case e := <-o.handed:
		if !o.canceled && s.leading != nil {
			return e, nil
		}
		s.putBack(e)
	default:
	}
	o.pool.waiting.remove(o)
	s.touch(o.pool)
	return nil, err
}

// putBack returns a Pod that was taken and not written. The lock is held.
func (s *Service) putBack(e *entry) {
	e.taken = false
	if s.pods[e.pod.UID] == e {
		s.offer(e)
	}
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

// awaitRunning waits until a sandbox runs, or has ended, or time is up.
func (s *Service) awaitRunning(ctx context.Context, id string, deadline time.Time) (*sandboxv1.Sandbox, error) {
	timer := s.opts.Clock.NewTimer(deadline.Sub(s.opts.Clock.Now()))
	defer timer.Stop()
	for {
		record, changed := s.look(id)
		switch record.GetPhase() {
		case sandboxv1.Phase_RUNNING:
			return record, nil
		case sandboxv1.Phase_STARTING:
		default:
			return nil, startFailure(id, record)
		}
		select {
		case <-changed:
		case <-timer.C():
			return nil, late(id, record)
		case <-ctx.Done():
			return nil, late(id, record)
		}
	}
}

// look answers a sandbox, live or ended, and for one that is starting a channel that is closed when there is more to know.
func (s *Service) look(id string) (*sandboxv1.Sandbox, <-chan struct{}) {
	s.mu.Lock()
	defer s.unlock()
	record := s.showLocked(id)
	ch, ok := s.watch[id]
	if !ok && record.GetPhase() == sandboxv1.Phase_STARTING {
		ch = make(chan struct{})
		s.watch[id] = ch
	}
	return record, ch
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
	switch reason := record.GetFailureReason(); reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError":
		e := problem.InvalidField("image", record.GetImage(), "an image that the cluster can pull")
		e.Message = fmt.Sprintf("sandbox %s did not start: %s: %s", id, reason, record.GetFailureMessage())
		return fault(e)
	}
	return fault(problem.New(problem.Unavailable, "sandbox %s ended before it ran: %s: %s %s",
		id, record.GetStopReason(), record.GetFailureReason(), record.GetFailureMessage()))
}

// checkRequest refuses what this worker can't do. What Kubernetes checks by itself, the API server refuses with the
// claim write.
func checkRequest(c *Claim) error {
	r := c.Request
	for key := range r.GetLabels() {
		if isReserved(key) {
			return fault(problem.InvalidField("labels", key, "keys outside agentbox.navix.sh, agentbox.io, agents.navix.sh and scheduling.navix.sh"))
		}
	}
	unbuilt := ""
	switch {
	case r.GetIdleTimeout().AsDuration() > 0:
		unbuilt = "idleTimeout: sandboxes are not ended when idle yet"
	case r.GetMaxLifetime().AsDuration() > 0:
		unbuilt = "maxLifetime: sandboxes are not ended by age yet"
	case r.GetFirstActivityTimeout().AsDuration() > 0:
		unbuilt = "firstActivityTimeout: activity is not recorded yet"
	case len(r.GetPostStartHooks()) > 0:
		unbuilt = "postStartHooks are not run yet"
	}
	if unbuilt != "" {
		return fault(problem.New(problem.Unimplemented, "%s", unbuilt))
	}
	return nil
}

var reservedDomains = []string{"agentbox.navix.sh", "agentbox.io", v1alpha1.GroupVersion.Group, "scheduling.navix.sh"}

func isReserved(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	if !found {
		return false
	}
	for _, reserved := range reservedDomains {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return true
		}
	}
	return false
}
