// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/sandbox"
)

// met is what a keyed claim finds; the zero value if it is to start anew.
type met struct {
	op      *op
	sandbox *sandboxv1.Sandbox
	ended   string // the id of a sandbox whose record is the answer
}

// meet answers a keyed claim from what is known of its key. The lock is held.
func (s *Service) meet(c *Claim) (met, error) {
	now := s.opts.Clock.Now()
	var k known
	if r, ok := s.refused.get(now, c.KeyHash); ok {
		k.refused = r.attempt
	}
	o := s.ops[c.KeyHash]
	if o != nil {
		k.pending = o.claim.Attempt
	}
	holder := s.holder(c.KeyHash)
	if holder != nil {
		k.held = sandbox.Read(holder.pod).Attempt
	}
	var over string
	over, k.ended = s.endedUnder(c.KeyHash)
	switch meet(k, c.Attempt) {
	case refuseAgain:
		r, _ := s.refused.get(now, c.KeyHash)
		return met{}, r.err
	case outdated:
		return met{}, refuse(problem.NoCapacity, "a later attempt of this claim key is known")
	case answerHolder:
		shown := s.show(holder)
		if hooks, err := hooksOf(c.Request); err != nil || hooks != sandbox.Read(holder.pod).Hooks {
			return met{sandbox: shown}, conflictUnless(false, c.Request.GetClaimKey())
		}
		return met{sandbox: shown}, conflict(c, shown)
	case joinClaim:
		return met{op: o}, conflictOf(c.Request, o.claim.Request)
	case answerRecord:
		return met{ended: over}, nil
	}
	if o != nil {
		s.cancelOp(o) // an earlier attempt, given up by whoever makes a later one
	}
	return met{}, nil
}

// holder is the Pod that stays, of those that carry a key. The lock is held.
func (s *Service) holder(hash string) *entry {
	var best *entry
	var bestState sandbox.State
	now := s.opts.Clock.Now()
	for _, e := range s.byKey[hash] {
		if _, stray := s.strays.get(now, e.id); stray {
			continue
		}
		state := sandbox.Read(e.pod)
		if best == nil || outranks(&state, &bestState) {
			best, bestState = e, state
		}
	}
	return best
}

// conflict refuses a claim whose key stands for other parameters, as far as the sandbox shows them.
func conflict(c *Claim, record *sandboxv1.Sandbox) error {
	r := c.Request
	same := r.GetTeam() == record.GetTeam() && r.GetUser() == record.GetUser() &&
		(r.GetEnv() == "" || r.GetEnv() == record.GetEnv()) &&
		(r.GetImage() == "" || sandbox.SameImage(r.GetImage(), record.GetImage())) &&
		maps.Equal(r.GetLabels(), record.GetLabels()) && maps.Equal(r.GetMetadata(), record.GetMetadata())
	return conflictUnless(same, r.GetClaimKey())
}

func conflictOf(a, b *sandboxv1.CreateSandboxRequest) error {
	same := a.GetTeam() == b.GetTeam() && a.GetUser() == b.GetUser() && a.GetEnv() == b.GetEnv() &&
		slices.EqualFunc(a.GetPostStartHooks(), b.GetPostStartHooks(), func(x, y *structpb.Struct) bool { return proto.Equal(x, y) }) &&
		a.GetImage() == b.GetImage() && maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetMetadata(), b.GetMetadata())
	return conflictUnless(same, a.GetClaimKey())
}

func conflictUnless(same bool, key string) error {
	if same {
		return nil
	}
	return fault(problem.New(problem.ClaimKeyConflict, "claim key %q stands for other parameters", key))
}

// enforce ends a live sandbox that must not be: one whose key was canceled or refused, one that another Pod with the same
// key outranks, one that nobody was told of, one that has ended before and came back with an etcd that was set back. What is
// known to a leader whose lease has lapsed, as to one that was frozen, is no reason: the next one may have answered that very
// sandbox. The lock is held.
func (s *Service) enforce(e *entry) {
	if !s.servingLocked() || !sandbox.PhaseOf(e.pod).Live() {
		return
	}
	now := s.opts.Clock.Now()
	if _, stray := s.strays.get(now, e.id); stray {
		s.spawnAbandon(e.id)
		return
	}
	// A Pod that is being deleted has its record before it goes, and a view that lags shows what was.
	if e.pod.DeletionTimestamp == nil && e.version >= e.top && s.opts.History.Has(e.id) {
		s.cameBack(e)
		return
	}
	if e.hash == "" {
		return
	}
	if r, ok := s.refused.get(now, e.hash); ok && sandbox.Read(e.pod).Attempt <= r.attempt {
		s.spawnDispose(e.id, canceledEnd("Canceled", "the claim had been refused or canceled when the Pod was written"))
		return
	}
	if len(s.byKey[e.hash]) < 2 {
		return
	}
	stays := s.holder(e.hash)
	if stays == nil {
		return
	}
	for _, other := range s.byKey[e.hash] {
		if other != stays && sandbox.PhaseOf(other.pod).Live() {
			s.spawnDispose(other.id, canceledEnd("DuplicateKey", "sandbox "+stays.id+" has the same claim key and stays"))
		}
	}
}

// cameBack ends a sandbox that has ended before, and is there again because etcd was set back. Where nobody has noticed that
// yet, it is noticed by this: what is idle may be somebody's as well. The lock is held.
func (s *Service) cameBack(e *entry) {
	if !sandbox.NeverReset(e.pod) {
		s.opts.Log.Error(ErrSetBack, "Serving nothing any more: a sandbox that has ended is there again", "sandbox", e.id, "pod", e.pod.Name)
		s.foundSetBack()
		return
	}
	s.spawnDispose(e.id, sandbox.End{StopReason: v1alpha1.SandboxStopReasonReleased})
}

// Decline refuses a claim with a key that there is no room to carry out, unless its attempt is known or may be: that one is
// to ask again. The refusal is remembered, since a claim of this attempt may be about to begin.
func (s *Service) Decline(c Claim, why *problem.Error) error {
	s.mu.Lock()
	defer s.unlock()
	if !s.servesLocked(&c) {
		return notServing()
	}
	found, err := s.meet(&c)
	if err != nil {
		return err
	}
	if _, mayBe := s.unclear.get(s.opts.Clock.Now(), c.KeyHash); mayBe || found != (met{}) {
		return doubt("%s; the same call with the same claimKey asks for it again", why.Message)
	}
	err = &disposed{problem: why, disposition: federationv1.Disposition_REFUSED}
	s.rememberRefusal(c.KeyHash, c.Attempt, err)
	return err
}

func (s *Service) rememberRefusal(hash string, attempt int32, err error) {
	now := s.opts.Clock.Now()
	if r, ok := s.refused.get(now, hash); ok && r.attempt > attempt {
		return
	}
	s.refused.put(now, hash, refusal{attempt: attempt, err: err})
}

// Lookup answers the sandbox of (key, attempt), live or ended; a claim under way is a sandbox that is PENDING. NOT_FOUND
// is no refusal.
func (s *Service) Lookup(ctx context.Context, hash string, attempt int32) (*sandboxv1.Sandbox, error) {
	id, shown, err := s.lookup(hash, attempt)
	if id != "" {
		shown, err = s.recorded(ctx, id)
	}
	if err == nil && shown == nil {
		err = notFound("no sandbox carries this claim key under attempt %d", attempt)
	}
	return shown, err
}

// lookup answers the id of a sandbox that has ended, or what there is of one that has not.
func (s *Service) lookup(hash string, attempt int32) (ended string, shown *sandboxv1.Sandbox, err error) {
	s.mu.Lock()
	defer s.unlock()
	if !s.servingLocked() {
		return "", nil, notServing()
	}
	if e := s.holder(hash); e != nil && sandbox.Read(e.pod).Attempt == attempt {
		return "", s.show(e), nil
	}
	if o := s.ops[hash]; o != nil && o.claim.Attempt == attempt {
		return "", s.showPending(o), nil
	}
	if id, of := s.endedUnder(hash); of == attempt {
		return id, nil, nil
	}
	return "", nil, nil
}

// Cancel ends (key, attempt) and all earlier attempts: their sandbox is released, and one that is yet to come is refused
// for ten minutes. The answer is the sandbox if there was one, else one that ENDED as Canceled without ever having a Pod.
func (s *Service) Cancel(ctx context.Context, hash string, attempt int32) (*sandboxv1.Sandbox, error) {
	id, record, err := s.cancel(hash, attempt)
	if err != nil || id == "" {
		return record, err
	}
	return s.Release(ctx, id)
}

func (s *Service) cancel(hash string, attempt int32) (string, *sandboxv1.Sandbox, error) {
	s.mu.Lock()
	defer s.unlock()
	if !s.servingLocked() {
		return "", nil, notServing()
	}
	s.rememberRefusal(hash, attempt, refuse(problem.NoCapacity, "the claim was canceled"))
	record := &sandboxv1.Sandbox{ClusterId: s.opts.ClusterID, Phase: sandboxv1.Phase_ENDED, StopReason: string(canceledEnd("", "").StopReason)}
	if o := s.ops[hash]; o != nil && o.claim.Attempt <= attempt {
		record = s.showPending(o)
		record.Phase, record.StopReason = sandboxv1.Phase_ENDED, string(canceledEnd("", "").StopReason)
		s.cancelOp(o)
	}
	if e := s.holder(hash); e != nil && sandbox.Read(e.pod).Attempt <= attempt {
		return e.id, nil, nil
	}
	if id, of := s.endedUnder(hash); id != "" && of <= attempt {
		return id, nil, nil // which answers its record
	}
	return "", record, nil
}

// Keys lists who has a claim key of the hub's: of each key the Pod that stays, or the claim under way. With ended those
// that had one are listed as well, for a hub that has lost its memory of them.
func (s *Service) Keys(ended bool) []*federationv1.KeyHolder {
	s.mu.Lock()
	defer s.unlock()
	var keys []*federationv1.KeyHolder
	for hash := range s.byKey {
		e := s.holder(hash)
		// A live Pod whose sandbox has ended came back with an etcd that was set back: the hub, which knows better, has it ended.
		if e == nil || s.opts.History.Has(e.id) && !sandbox.PhaseOf(e.pod).Live() {
			continue
		}
		state := sandbox.Read(e.pod)
		if s.isLocal(e.pod.Namespace, &state) {
			continue
		}
		keys = append(keys, &federationv1.KeyHolder{
			KeyHash: hash, Attempt: state.Attempt, SandboxId: e.id, PodUid: string(e.pod.UID),
		})
	}
	for hash, o := range s.ops {
		if !o.claim.Local && !o.canceled && s.byID[o.id] == nil {
			keys = append(keys, &federationv1.KeyHolder{KeyHash: hash, Attempt: o.claim.Attempt, SandboxId: o.id})
		}
	}
	if ended {
		keys = append(keys, s.endedKeys()...)
	}
	slices.SortFunc(keys, func(a, b *federationv1.KeyHolder) int {
		return cmp.Or(cmp.Compare(a.GetSandboxId(), b.GetSandboxId()), cmp.Compare(a.GetKeyHash(), b.GetKeyHash()))
	})
	return keys
}

// endedKeys lists the latest sandbox that ended under each key. The lock is held.
func (s *Service) endedKeys() []*federationv1.KeyHolder {
	var keys []*federationv1.KeyHolder
	for _, k := range s.opts.History.Keys() {
		if id, _ := s.endedUnder(k.Hash); k.ForHub && id == k.ID {
			keys = append(keys, &federationv1.KeyHolder{KeyHash: k.Hash, Attempt: k.Attempt, SandboxId: k.ID, Ended: true})
		}
	}
	for _, id := range s.ended.keys {
		if r, ok := s.ended.records.get(s.opts.Clock.Now(), id); ok && r.ForHub {
			keys = append(keys, &federationv1.KeyHolder{KeyHash: r.KeyHash, Attempt: r.Attempt, SandboxId: id, Ended: true})
		}
	}
	return keys
}

// isLocal reports whether a key was given at this worker's own API.
func (s *Service) isLocal(namespace string, state *sandbox.State) bool {
	return state.KeyHash == sandbox.LocalKeyHash(state.Team, namespace, state.Key, s.opts.ClusterID)
}
