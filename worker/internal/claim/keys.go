// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandbox"
)

// refusal is the error for an attempt of a key and all earlier attempts.
type refusal struct {
	attempt int32
	err     error
}

// existing is what exists for a claim. The zero value means that the claim starts a new sandbox.
type existing struct {
	op      *op
	sandbox *sandboxv1.Sandbox
	ended   string // the id of a sandbox whose record is the result
}

// carriers are what exists for a key here: the claim under way, the Pod that holds it, and the latest record. known has their attempts.
type carriers struct {
	known
	op       *op
	holder   *inventory.Pod
	recorded string // the id of the record's sandbox
}

func (s *Service) carriers(v *inventory.View, shared *shared, hash string) carriers {
	c := carriers{op: shared.ops[hash], holder: v.Holder(hash)}
	if c.op != nil {
		c.pending = c.op.claim.Attempt
	}
	if c.holder != nil {
		c.held = sandbox.Read(c.holder.Object()).Attempt
	}
	c.recorded, c.ended = s.sandboxes.EndedUnder(v, hash)
	return c
}

// resolveKey returns what exists for a claim's key.
func (l locked) resolveKey(c *Claim) (existing, error) {
	k := l.carriers(&l.View, l.shared, c.KeyHash)
	refused, ok := l.refused.Get(l.clock.Now(), c.KeyHash)
	if ok {
		k.refused = refused.attempt
	}
	switch decideKey(k.known, c.Attempt) {
	case refuseAgain:
		return existing{}, refused.err
	case outdated:
		return existing{}, disposition.Refuse(problem.NoCapacity, "a later attempt of this claim key is known")
	case returnHolder:
		return l.sandboxOfKey(c, k.holder)
	case joinClaim:
		return join(c, k.op)
	case returnRecord:
		return existing{ended: k.recorded}, nil
	}
	if k.op != nil {
		l.abort(k.op) // the caller of the later attempt has abandoned this one
	}
	return existing{}, nil
}

// sandboxOfKey returns the sandbox of a key if the claim has the same parameters, else a conflict.
func (l locked) sandboxOfKey(c *Claim, holder *inventory.Pod) (existing, error) {
	shown := l.sandboxes.Show(holder)
	hooks, err := hooksOf(c.Request)
	if err != nil {
		return existing{sandbox: shown}, conflict(c, "postStartHooks")
	}
	differ := differing(c.Request, shown)
	if hooks != sandbox.Read(holder.Object()).Hooks {
		differ = append(differ, "postStartHooks")
	}
	if len(differ) > 0 {
		return existing{sandbox: shown}, conflict(c, differ...)
	}
	return existing{sandbox: shown}, nil
}

// join returns the claim under way if the new claim has the same parameters, else a conflict.
func join(c *Claim, o *op) (existing, error) {
	if differ := problem.Differing(visible(c.Request), visible(o.claim.Request)); len(differ) > 0 {
		return existing{op: o}, conflict(c, differ...)
	}
	return existing{op: o}, nil
}

// resolveHubKey returns what the hub has for the key of a claim of the local API, of any attempt. A client that falls back to the local API
// repeats the key that it gave to the hub.
func (l locked) resolveHubKey(c *Claim) (existing, error) {
	switch k := l.carriers(&l.View, l.shared, hubHash(c.Request)); {
	case k.op != nil && !k.op.canceled:
		return join(c, k.op)
	case k.holder != nil:
		return l.sandboxOfKey(c, k.holder)
	default:
		return existing{ended: k.recorded}, nil
	}
}

// hubHash is the hash under which the hub dispatches a request's key.
func hubHash(r *sandboxv1.CreateSandboxRequest) string {
	return sandbox.KeyHash(r.GetTeam(), r.GetNamespace(), r.GetClaimKey())
}

// differing returns the parameters of a request that differ from those that a sandbox was created with, as far as its record shows them.
func differing(r *sandboxv1.CreateSandboxRequest, record *sandboxv1.Sandbox) []string {
	asked := visible(r)
	asked.PostStartHooks = nil
	shown := &sandboxv1.CreateSandboxRequest{
		Team: record.GetTeam(), User: record.GetUser(), Env: record.GetEnv(), Image: record.GetImage(),
		Labels: record.GetLabels(), Metadata: record.GetMetadata(),
	}
	if asked.GetEnv() == "" {
		shown.Env = ""
	}
	if asked.GetImage() == "" || sandbox.SameImage(asked.GetImage(), shown.GetImage()) {
		shown.Image = asked.GetImage()
	}
	return problem.Differing(asked, shown)
}

// visible returns the parameters by which a worker compares two requests.
func visible(r *sandboxv1.CreateSandboxRequest) *sandboxv1.CreateSandboxRequest {
	return &sandboxv1.CreateSandboxRequest{
		Team: r.GetTeam(), User: r.GetUser(), Env: r.GetEnv(), Image: r.GetImage(), Labels: r.GetLabels(), Metadata: r.GetMetadata(),
		PostStartHooks: r.GetPostStartHooks(),
	}
}

func conflict(c *Claim, differ ...string) error {
	return disposition.Fault(problem.KeyConflict(c.Request.GetClaimKey(), differ))
}

// Decline refuses a claim with a key because there is no room for it, unless its attempt is known or may be known. Then the caller must ask
// again. The refusal is remembered, because a claim of this attempt may be about to begin.
func (s *Service) Decline(c Claim, why *problem.Error) (err error) {
	s.update(func(l locked) { err = l.decline(&c, why) })
	return err
}

func (l locked) decline(c *Claim, why *problem.Error) error {
	if !serves(&l.View, c) {
		return disposition.NotServing()
	}
	found, err := l.resolveKey(c)
	if err != nil {
		return err
	}
	if _, mayBe := l.unclear.Get(l.clock.Now(), c.KeyHash); mayBe || found != (existing{}) {
		return disposition.Doubt("%s; the same call with the same claimKey asks for it again", why.Message)
	}
	err = disposition.Refusal(why)
	l.rememberRefusal(c.KeyHash, c.Attempt, err)
	return err
}

func (l locked) rememberRefusal(hash string, attempt int32, err error) {
	now := l.clock.Now()
	if r, ok := l.refused.Get(now, hash); ok && r.attempt > attempt {
		return
	}
	l.refused.Put(now, hash, refusal{attempt: attempt, err: err})
}

// Withdraw refuses an attempt of a key that waits in a queue, because the hub has found an idle Pod elsewhere. NOT_FOUND means that nothing
// has changed: the claim has a Pod, has ended, or is not known.
func (s *Service) Withdraw(hash string, attempt int32) (err error) {
	s.update(func(l locked) { err = l.withdraw(hash, attempt) })
	return err
}

func (l locked) withdraw(hash string, attempt int32) error {
	if !l.Serving() {
		return disposition.NotServing()
	}
	o := l.ops[hash]
	if o == nil || o.claim.Local || o.claim.Attempt != attempt || o.line == nil {
		return disposition.NotFound("no claim waits under this key and attempt %d", attempt)
	}
	o.queue.remove(&o.waiter)
	o.refused <- l.turnAway(o.queue, withdrawn)
	l.touch(o.queue)
	return nil
}

// Lookup returns the sandbox of an attempt of a key, live or ended. A claim under way is a PENDING sandbox. NOT_FOUND is not a refusal.
func (s *Service) Lookup(ctx context.Context, hash string, attempt int32) (shown *sandboxv1.Sandbox, err error) {
	var ended string
	s.view(func(v *inventory.View, shared *shared) { ended, shown, err = s.lookup(v, shared, hash, attempt) })
	if ended != "" {
		shown, err = s.sandboxes.Recorded(ctx, ended)
	}
	if err == nil && shown == nil {
		err = disposition.NotFound("no sandbox carries this claim key under attempt %d", attempt)
	}
	return shown, err
}

// LookupLatest is Lookup for the latest attempt of a key that is known here.
func (s *Service) LookupLatest(ctx context.Context, hash string) (*sandboxv1.Sandbox, error) {
	var attempt int32
	s.view(func(v *inventory.View, shared *shared) { attempt = s.carriers(v, shared, hash).latest() })
	return s.Lookup(ctx, hash, attempt)
}

// lookup returns the id of a sandbox that has ended, or the state of a live or pending one.
func (s *Service) lookup(v *inventory.View, shared *shared, hash string, attempt int32) (string, *sandboxv1.Sandbox, error) {
	if !v.Serving() {
		return "", nil, disposition.NotServing()
	}
	switch k := s.carriers(v, shared, hash); {
	case k.holder != nil && k.held == attempt:
		return "", s.sandboxes.Show(k.holder), nil
	case k.op != nil && k.pending == attempt:
		shown := s.showPending(k.op)
		shown.Waiting = s.waitingOf(v, k.op)
		return "", shown, nil
	case k.ended == attempt:
		return k.recorded, nil, nil
	}
	return "", nil, nil
}

// showPending returns the sandbox of a claim without a Pod. Its id is that of the future sandbox.
func (s *Service) showPending(o *op) *sandboxv1.Sandbox {
	r := o.claim.Request
	return &sandboxv1.Sandbox{
		Id: o.id, ClusterId: s.clusterID, Namespace: o.claim.Pool.Namespace, Env: r.GetEnv(), Pool: o.claim.Pool.Name,
		Phase: sandboxv1.Phase_PENDING, Image: o.image, Team: r.GetTeam(), User: r.GetUser(),
		Labels: r.GetLabels(), Metadata: r.GetMetadata(), ClaimKey: r.GetClaimKey(),
	}
}

// waitingOf returns the place of a claim in its queue, or nil for a claim that has a Pod or is about to leave.
func (s *Service) waitingOf(v *inventory.View, o *op) *sandboxv1.Waiting {
	position := o.queue.position(&o.waiter)
	if position == 0 {
		return nil
	}
	why := "no Pod of the pool is idle"
	if p := v.Pool(o.claim.Pool); p != nil && p.Empty() {
		why = "the pool has no Pods"
	}
	return &sandboxv1.Waiting{
		Position: int32(position), Claims: int32(o.queue.len()), Waited: durationpb.New(s.clock.Since(o.started)), Reason: why,
	}
}

// Cancel ends an attempt of a key and all earlier ones: their sandbox is released, and their later claims are refused for ten minutes. It
// returns the sandbox if there was one, else a record that ENDED as Canceled without a Pod.
func (s *Service) Cancel(ctx context.Context, hash string, attempt int32) (record *sandboxv1.Sandbox, err error) {
	var id string
	s.update(func(l locked) { id, record, err = l.cancel(hash, attempt) })
	if err != nil || id == "" {
		return record, err
	}
	return s.sandboxes.Release(ctx, id)
}

// cancel returns the id of the sandbox if one exists, else the record of a claim without one.
func (l locked) cancel(hash string, attempt int32) (string, *sandboxv1.Sandbox, error) {
	if !l.Serving() {
		return "", nil, disposition.NotServing()
	}
	l.rememberRefusal(hash, attempt, disposition.Refuse(problem.NoCapacity, "the claim was canceled"))
	record := &sandboxv1.Sandbox{ClusterId: l.clusterID}
	if o := l.ops[hash]; o != nil && o.claim.Attempt <= attempt {
		record = l.showPending(o)
		l.abort(o)
	}
	record.Phase, record.StopReason = sandboxv1.Phase_ENDED, string(v1alpha1.SandboxStopReasonCanceled)
	if p := l.Holder(hash); p != nil && sandbox.Read(p.Object()).Attempt <= attempt {
		return p.Sandbox(), nil, nil
	}
	if id, of := l.sandboxes.EndedUnder(&l.View, hash); id != "" && of <= attempt {
		return id, nil, nil // Release returns its record
	}
	return "", record, nil
}

// Keys lists the holders of the hub's claim keys: for each key the Pod that holds it, or the claim under way.
func (s *Service) Keys() (keys []*federationv1.KeyHolder) {
	s.view(func(v *inventory.View, shared *shared) { keys = s.keys(v, shared) })
	return sorted(keys)
}

// AllKeys is Keys plus the sandboxes that have ended, for a hub that has lost its store.
func (s *Service) AllKeys() (keys []*federationv1.KeyHolder) {
	s.view(func(v *inventory.View, shared *shared) {
		keys = append(s.keys(v, shared), s.sandboxes.EndedKeys(v)...)
	})
	return sorted(keys)
}

func (s *Service) keys(v *inventory.View, shared *shared) (keys []*federationv1.KeyHolder) {
	for hash := range v.KeyHashes() {
		p := v.Holder(hash)
		// A live Pod whose sandbox has ended came back with a restored etcd. It is listed, so that the hub, which has its record, ends it.
		if p == nil || s.sandboxes.HasEnded(p.Sandbox()) && !p.Live() {
			continue
		}
		state := sandbox.Read(p.Object())
		if s.sandboxes.IsLocal(p.Object().Namespace, &state.Claim) {
			continue
		}
		keys = append(keys, &federationv1.KeyHolder{
			KeyHash: hash, Attempt: state.Attempt, SandboxId: p.Sandbox(), PodUid: string(p.Object().UID), Proof: state.Proof,
		})
	}
	for hash, o := range shared.ops {
		if !o.claim.Local && !o.canceled && v.Sandbox(o.id) == nil {
			keys = append(keys, &federationv1.KeyHolder{KeyHash: hash, Attempt: o.claim.Attempt, SandboxId: o.id, Proof: o.claim.Proof})
		}
	}
	return keys
}

func sorted(keys []*federationv1.KeyHolder) []*federationv1.KeyHolder {
	slices.SortFunc(keys, func(a, b *federationv1.KeyHolder) int {
		return cmp.Or(cmp.Compare(a.GetSandboxId(), b.GetSandboxId()), cmp.Compare(a.GetKeyHash(), b.GetKeyHash()))
	})
	return keys
}
