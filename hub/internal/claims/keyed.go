// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	firstPoll = 50 * time.Millisecond
	maxPoll   = 500 * time.Millisecond
)

// keyed is one flight's access to its record.
type keyed struct {
	service  *Service
	flight   *flight
	held     ledger.Held
	deadline time.Time
	pursuit  *pursuit // nil if nothing was dispatched
	earlier  *pursuit // the pursuit before another replica wrote the record
}

// run acts on the record. It starts again when another replica has written the record meanwhile.
func (k *keyed) run() (*sandboxv1.Sandbox, error) {
	for {
		sandbox, err := k.lap()
		if k.service.shared != nil && !errors.Is(err, errRecordChanged) {
			sandbox, err = k.confirm(sandbox, err)
		}
		if !errors.Is(err, errRecordChanged) {
			return sandbox, err
		}
		if k.service.clock.Now().After(k.deadline.Add(grace)) {
			return nil, storeFailed(store.ErrConflict)
		}
		k.pursuit, k.earlier = nil, cmp.Or(k.pursuit, k.earlier)
	}
}

// lap reads the record and acts on it.
func (k *keyed) lap() (*sandboxv1.Sandbox, error) {
	s, f := k.service, k.flight
	var err error
	if k.held, err = s.ledger.Load(f.ctx, f.hash); err != nil {
		return nil, storeFailed(err)
	}
	r := k.held.Record
	same := false
	if r != nil {
		if same, err = r.Same(f.request); err != nil {
			return nil, err
		}
		if k.deadline.IsZero() { // the first lap: no caller reads it yet
			f.repeat = same
		}
		if same && !r.Adopted {
			f.prove()
		}
	}
	now := s.clock.Now()
	way := begin(r, same, s.trust(r, f.request))
	if d := flightDeadline(r, now, s.startupTimeout(f.request, holderOf(r, way))); k.deadline.IsZero() || d.Before(k.deadline) {
		k.deadline = d
	}
	ctx, cancel := context.WithTimeout(f.ctx, k.deadline.Sub(now)+grace)
	defer cancel()
	switch way {
	case keyConflict:
		return nil, problem.KeyConflict(f.request.GetClaimKey(), r.Differing(f.request))
	case quarantine:
		return nil, quarantined(r)
	case showEnded:
		return k.showEnded(ctx)
	case lookUp:
		return k.lookUp(ctx)
	case endItself:
		return k.endForgotten(ctx)
	case askHolder:
		if err := k.join(ctx); err != nil {
			return nil, err
		}
		f.writtenDown(sketch(f.request, sandboxv1.Phase_PENDING))
		return k.pursue(ctx, &target{cluster: r.Cluster, uid: r.ClusterUID, pool: r.Pool, attempt: r.Attempt})
	default:
		return k.pursue(ctx, nil)
	}
}

// trust gathers the relation of the record's cluster to a request.
func (s *Service) trust(r *ledger.Record, req *sandboxv1.CreateSandboxRequest) trust {
	if r == nil {
		return trust{allowed: true, serves: true}
	}
	return trust{
		allowed: allows(req, r.Cluster), forgotten: s.fleet.Forgotten(r.Cluster, r.ClusterUID),
		serves: s.fleet.ServesTeam(r.Cluster, req.GetTeam(), envOf(req)),
	}
}

// quarantined returns the error for a key that a cluster names without a proof, or that the cluster may not serve.
func quarantined(r *ledger.Record) *problem.Error {
	if r.State != ledger.Unproven {
		return problem.New(problem.OutcomeUnknown, "cluster %s named this claim key after the hub had lost its records, and may not "+
			"serve it (atollctl cluster set): the key is not used until its claim is canceled, or that cluster may serve it; another "+
			"key is", r.Cluster)
	}
	return problem.New(problem.OutcomeUnknown, "cluster %s named this claim key after the hub had lost its records, without "+
		"a proof that it was sent the claim: the key is not used until its claim is canceled, or that cluster holds it no more; "+
		"another key is", r.Cluster)
}

// allows reports whether a claim may go to a cluster.
func allows(req *sandboxv1.CreateSandboxRequest, cluster string) bool {
	return !req.GetRequireClusters() || slices.Contains(req.GetClusters(), cluster)
}

// holderOf returns the record of a claim that resumes on its cluster, or nil for a claim that chooses a cluster.
func holderOf(r *ledger.Record, way approach) *ledger.Record {
	if way == startAnew {
		return nil
	}
	return r
}

// showEnded returns the terminal record of the key's sandbox.
func (k *keyed) showEnded(ctx context.Context) (*sandboxv1.Sandbox, error) {
	r := k.held.Record
	sandbox, err := k.service.ledger.Terminal(ctx, r)
	if err != nil || !r.Adopted {
		return sandbox, err
	}
	shown := sandbox
	if shown.GetEnv() == "" && !k.service.fleet.Forgotten(r.Cluster, r.ClusterUID) {
		// The hub recorded the end before the cluster's record arrived, and that entry has no parameters.
		if shown, err = k.service.lookup(ctx, k.flight.hash, r); err != nil && reasonOf(err) != problem.NotFound {
			return nil, err
		}
	}
	if differ := differing(k.flight.request, shown); shown.GetEnv() != "" && len(differ) > 0 {
		return nil, problem.KeyConflict(k.flight.request.GetClaimKey(), differ)
	}
	if err := k.storeRequest(ctx); err != nil {
		return nil, err
	}
	return sandbox, nil
}

// pursue pursues the claim, starting with the cluster that may hold it already.
func (k *keyed) pursue(ctx context.Context, holder *target) (*sandboxv1.Sandbox, error) {
	f := k.flight
	p := k.earlier
	if p == nil {
		p = k.service.newPursuit(f.request, f.dispatched(), k.deadline)
		p.as = f.as
		p.keyHash, p.recordTarget, p.check, p.at.keyed = f.hash, k.recordTarget, k.check, true
	}
	p.deadline, p.released, p.target, p.at.open, p.at.staleRetried = k.deadline, false, nil, false, false
	var unheard []string // clusters that may have the key already
	if !k.service.recovery.Whole() {
		unheard = k.service.recovery.Unheard(k.service.fleet.ClusterIDs())
	}
	p.bar(unheard)
	if holder != nil {
		// If another candidate has an idle Pod, a holder that does not know the claim and has none need not queue it: the replica or process that
		// chose the holder may have ended before it sent the claim.
		beside, _ := p.idleBeside(router.RequestOf(f.request), holder)
		holder.idleOnly = beside != nil
		p.target, p.at.open, p.at.tried = holder, true, max(p.at.tried, 1)
		var err error
		if p.decision, err = k.held.Record.ParseDecision(); err != nil {
			return nil, err
		}
	}
	k.pursuit = p
	return p.run(ctx)
}

// recordTarget records the next candidate of the claim before the claim is sent to it.
func (k *keyed) recordTarget(ctx context.Context, cluster, pool string, decision *sandboxv1.Decision) (int32, error) {
	f, now := k.flight, k.service.clock.Now()
	next := &ledger.Record{
		Request: ledger.Marshal(f.request), Account: f.account, Cluster: cluster, ClusterUID: k.service.fleet.Registration(cluster), Pool: pool,
		Attempt: nextAttempt(k.held.Record, k.service.recovery.Epoch()), State: ledger.Pending,
		Unwaited: f.wait == noWait, Replica: k.service.replica, CreatedAt: now, Deadline: k.deadline,
		ExpireAt: k.deadline.Add(k.service.retention), Decision: ledger.Marshal(decision),
	}
	if r := k.held.Record; r != nil {
		next.CreatedAt = r.CreatedAt
	}
	if err := k.service.quota.check(f.account, k.service.ledger.With(k.held, next)); err != nil {
		return 0, err
	}
	saved, err := k.service.ledger.Save(ctx, f.hash, k.held, next)
	if err != nil {
		return 0, k.service.failed(err)
	}
	k.held = saved
	f.prove()
	accepted := sketch(f.request, sandboxv1.Phase_PENDING)
	accepted.ClusterId, accepted.Pool, accepted.Decision = cluster, pool, proto.CloneOf(decision)
	f.writtenDown(accepted)
	return next.Attempt, nil
}

// storeFailed returns the error for a record that could not be read or written. A conflict means that a cancel or an end came first: the
// next call with the key finds it.
func storeFailed(err error) error {
	if errors.Is(err, store.ErrConflict) {
		return problem.New(problem.OutcomeUnknown, "the claim was changed by another call; ask again with the same claimKey").
			WithRetryAfter(problem.RetrySoon)
	}
	return problem.New(problem.Unavailable, "the hub's store failed: %w", err).WithRetryAfter(problem.RetrySoon)
}

// lookUp returns the sandbox that this key returned before. It never claims; because a worker that has lost the key would create a second
// sandbox.
func (k *keyed) lookUp(ctx context.Context) (*sandboxv1.Sandbox, error) {
	s, f, r := k.service, k.flight, k.held.Record
	ready := f.wait != noWait && f.wait != waitAssigned
	pause := firstPoll
	s.close(f)
	for {
		sandbox, err := s.lookup(ctx, f.hash, r)
		switch {
		case err == nil && r.Adopted && len(differing(f.request, sandbox)) > 0:
			return nil, problem.KeyConflict(f.request.GetClaimKey(), differing(f.request, sandbox))
		case err == nil && (settled(sandbox) || !ready):
			if err := k.storeRequest(ctx); err != nil {
				return nil, err
			}
			if err := k.check(ctx); err != nil {
				return nil, err
			}
			sandbox.Decision, err = r.ParseDecision()
			return sandbox, err
		case err != nil && reasonOf(err) == problem.NotFound:
			return k.vanished(ctx)
		case err != nil && !transient(err):
			return nil, err
		}
		remaining := k.deadline.Sub(s.clock.Now())
		if remaining <= 0 || wallclock.Sleep(ctx, s.clock, min(pause, remaining)) != nil {
			if err == nil {
				return nil, problem.New(problem.Deadline, "sandbox %s is not running yet", r.SandboxID)
			}
			return nil, problem.New(problem.OutcomeUnknown,
				"cluster %s holds this claim and does not respond; the same call with the same claimKey asks it again", r.Cluster).
				WithRetryAfter(problem.RetrySoon)
		}
		pause = min(2*pause, maxPoll)
	}
}

// lookup requests the claim's state from its cluster.
func (s *Service) lookup(ctx context.Context, hash string, r *ledger.Record) (*sandboxv1.Sandbox, error) {
	answer, err := s.workers.Call(ctx, r.Cluster, &federationv1.Dispatch{
		Call: &federationv1.Dispatch_Lookup{Lookup: &federationv1.LookupCall{KeyHash: hash, Attempt: r.Attempt}},
	})
	if err != nil {
		return nil, err
	}
	if answer.GetSandbox() == nil {
		return nil, problem.New(problem.Unavailable, "cluster %s does not know the state of the claim for certain", r.Cluster)
	}
	return answer.GetSandbox(), calls.Stamp(answer.GetSandbox(), r.Cluster)
}

func reasonOf(err error) problem.Reason { return problem.FromError(err).Reason }

// transient reports whether a retry may help.
func transient(err error) bool {
	switch reasonOf(err) {
	case problem.Unavailable, problem.Recovering, problem.Deadline, problem.OutcomeUnknown:
		return true
	default:
		return false
	}
}

// vanished returns the end of a sandbox that its cluster no longer has: the terminal record if it has arrived meanwhile. It writes nothing;
// because the terminal record may be in flight.
func (k *keyed) vanished(ctx context.Context) (*sandboxv1.Sandbox, error) {
	h, err := k.service.ledger.Load(ctx, k.flight.hash)
	if err != nil {
		return nil, storeFailed(err)
	}
	if h.Record != nil && h.Record.State == ledger.Ended {
		return k.service.ledger.Terminal(ctx, h.Record)
	}
	return lost(k.flight.request, k.held.Record), nil
}

// canceled returns the result of a flight whose claim was cancelled. A granted sandbox is not returned.
func (k *keyed) canceled() (*sandboxv1.Sandbox, error) {
	s, f := k.service, k.flight
	if p := k.pursuit; p != nil && p.target != nil {
		s.endAfter(ending{cluster: p.target.cluster, hash: f.hash, attempt: p.target.attempt})
	}
	h, err := s.ledger.Load(s.background.Context(), f.hash)
	if err != nil {
		return nil, storeFailed(err)
	}
	if h.Record == nil || h.Record.State != ledger.Ended {
		return nil, problem.New(problem.OutcomeUnknown, "the claim was cancelled").WithRetryAfter(problem.RetrySoon)
	}
	return s.ledger.Terminal(s.background.Context(), h.Record)
}

// resultRecord returns the record with the flight's outcome: the key's sandbox, or that no cluster took the claim. It returns nil if the
// outcome is neither.
func (k *keyed) resultRecord(sandbox *sandboxv1.Sandbox, failure error) (*ledger.Record, []store.Put) {
	s, f := k.service, k.flight
	p, r := k.pursuit, k.held.Record
	if p == nil || r == nil || errors.Is(context.Cause(f.ctx), errCanceled) {
		return nil, nil
	}
	next := *r
	next.Decision = ledger.Marshal(p.decision)
	next.Request, next.Digest, next.Adopted = ledger.Marshal(f.request), nil, false
	next.Account = cmp.Or(next.Account, f.account)
	switch {
	case failure == nil && (sandbox.GetPhase() != sandboxv1.Phase_ENDED || s.shared != nil):
		next.State, next.SandboxID = ledger.Returned, sandbox.GetId()
		put, err := ledger.PutID(next.SandboxID, ledger.IDRecord{KeyHash: f.hash})
		if err != nil {
			return nil, nil
		}
		return &next, []store.Put{put}
	case failure != nil && p.released:
		next.State, next.ExpireAt = ledger.Refused, s.clock.Now().Add(min(refusedRetention, s.retention))
		next.Shorten(f.request)
		return &next, nil
	default:
		return nil, nil
	}
}

// learn writes the flight's outcome after the result was returned.
func (k *keyed) learn() {
	s, f := k.service, k.flight
	next, extra := k.resultRecord(f.sandbox, f.err)
	for next != nil {
		err := k.write(next, extra)
		if err == nil || errors.Is(err, store.ErrConflict) { // on a conflict the claim has ended already
			return
		}
		s.log.Error(err, "Could not record the outcome of a claim", "claimKey", f.hash, "cluster", next.Cluster)
		// Until the record says that the sandbox was returned, the sandbox's end must not free the key: while this flight lasts,
		// the sandbox is not released.
		if next.State != ledger.Returned || wallclock.Sleep(s.background.Context(), s.clock, learnPause) != nil {
			return
		}
	}
}

// refusedRetention is how long a refused claim is kept. It is longer than workers remember refusals (10 min) plus the time that a dispatch
// can be in flight (1 min), so that no refused attempt is repeated.
const refusedRetention = 15 * time.Minute

// learnPause is the pause between two attempts to write an outcome, for example with a full disk.
const learnPause = time.Second

// write also works while the hub shuts down; because the record prevents that a key is claimed again.
func (k *keyed) write(next *ledger.Record, extra []store.Put) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.flight.ctx), calls.Timeout)
	defer cancel()
	_, err := k.service.ledger.SaveLazily(ctx, k.flight.hash, k.held, next, extra...)
	return err
}
