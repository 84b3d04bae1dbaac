// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/duration"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/validate"
)

// keyRef is a claim key as a caller names it.
type keyRef struct {
	key, team, namespace, hash string
}

func resolveKey(p principal.Principal, key, namespace, team string) (keyRef, error) {
	if namespace == "" {
		namespace = "default"
	}
	var f validate.Faults
	f.ClaimKey(key)
	f.Namespace(namespace)
	f.Tenant("team", team)
	if err := f.Err(); err != nil {
		return keyRef{}, err
	}
	team, err := p.OwnTeam(team)
	if err != nil {
		return keyRef{}, err
	}
	if err := p.CheckNamespace(namespace); err != nil {
		return keyRef{}, err
	}
	return keyRef{key, team, namespace, ledger.KeyHash(team, namespace, key)}, nil
}

// visible reads the record of a key that the caller may see.
func (s *Service) visible(ctx context.Context, p principal.Principal, k keyRef) (ledger.Held, *sandboxv1.CreateSandboxRequest, error) {
	if err := s.settle(ctx, k.hash); err != nil {
		return ledger.Held{}, nil, err
	}
	h, err := s.ledger.Load(ctx, k.hash)
	if err != nil {
		return ledger.Held{}, nil, storeFailed(err)
	}
	if h.Record == nil {
		s.awaitMemories(ctx)
		if err := s.recovered(ctx); err != nil {
			return ledger.Held{}, nil, err
		}
		if h, err = s.ledger.Load(ctx, k.hash); err != nil { // a recovery may have adopted it meanwhile
			return ledger.Held{}, nil, storeFailed(err)
		}
	}
	missing := problem.New(problem.NotFound, "no claim with key %q in namespace %s; keys are kept until %s after their sandbox ended",
		k.key, k.namespace, duration.HumanDuration(s.retention))
	if h.Record == nil {
		return ledger.Held{}, nil, missing
	}
	req, err := h.Record.ParseRequest()
	if err != nil {
		return ledger.Held{}, nil, err
	}
	bound := p.User != "" || p.BoundToEnvs()
	if bound && h.Record.State == ledger.Unproven {
		return ledger.Held{}, nil, quarantined(h.Record) // only the cluster says which user and Env the claim has
	}
	user, env := req.GetUser(), req.GetEnv()
	if bound && h.Record.Adopted { // without a request
		sandbox, err := s.adoptedSandbox(ctx, k.hash, h.Record)
		if err != nil {
			return ledger.Held{}, nil, err
		}
		user, env = sandbox.GetUser(), sandbox.GetEnv()
	}
	// The team is the key's; because the hash of the key includes it, and an adopted record has no request.
	if p.User != "" && p.User != user || !p.SeesClaim(k.team, k.namespace, env, h.Record.Cluster) {
		return ledger.Held{}, nil, missing
	}
	return h, req, nil
}

// adoptedSandbox returns the sandbox of an adopted record: its terminal record if it has ended, else what its cluster has.
func (s *Service) adoptedSandbox(ctx context.Context, hash string, r *ledger.Record) (*sandboxv1.Sandbox, error) {
	if r.State == ledger.Ended {
		return s.ledger.Terminal(ctx, r)
	}
	return s.lookup(ctx, hash, r)
}

// GetClaim returns the state of a key, without the sandbox if its cluster does not respond.
func (s *Service) GetClaim(ctx context.Context, in *sandboxv1.GetClaimRequest) (*sandboxv1.Claim, error) {
	p := principal.From(ctx)
	k, err := resolveKey(p, in.GetClaimKey(), in.GetNamespace(), in.GetTeam())
	if err != nil {
		return nil, withKey(err, in.GetClaimKey())
	}
	h, _, err := s.visible(ctx, p, k)
	if err != nil {
		return nil, withKey(err, k.key)
	}
	claim := k.describe(h.Record)
	if h.Record.State == ledger.Ended {
		claim.Sandbox, err = s.ledger.Terminal(ctx, h.Record)
		if err == nil && s.beyondScope(h.Record, k, claim.GetSandbox()) {
			return k.unknown(h.Record), nil
		}
		fillState(claim, claimFacts{record: h.Record, sandbox: claim.GetSandbox()})
		return claim, err
	}
	if h.Record.State == ledger.Unproven {
		return k.unknown(h.Record), nil
	}
	sandbox, err := s.lookup(ctx, k.hash, h.Record)
	if err == nil && s.beyondScope(h.Record, k, sandbox) {
		return k.unknown(h.Record), nil
	}
	if err == nil {
		claim.Sandbox = sandbox
	}
	fillState(claim, claimFacts{
		record: h.Record, sandbox: sandbox, err: err, flying: s.flights.of(k.hash) != nil,
		forgotten: s.fleet.Forgotten(h.Record.Cluster, h.Record.ClusterUID), now: s.clock.Now(),
	})
	return claim, nil
}

// unknown returns the claim of a key in quarantine.
func (k keyRef) unknown(r *ledger.Record) *sandboxv1.Claim {
	claim := k.describe(r)
	claim.State, claim.Message = sandboxv1.Claim_UNKNOWN, quarantined(r).Message
	return claim
}

// beyondScope reports whether a recovery adopted a sandbox for the key that its cluster may not serve.
func (s *Service) beyondScope(r *ledger.Record, k keyRef, sandbox *sandboxv1.Sandbox) bool {
	env := segment.Key{Namespace: k.namespace, Name: sandbox.GetEnv()}
	return beyond(r, s.fleet.ServesTeam(r.Cluster, k.team, env)) && !s.fleet.Forgotten(r.Cluster, r.ClusterUID)
}

func (k keyRef) describe(r *ledger.Record) *sandboxv1.Claim {
	return &sandboxv1.Claim{
		ClaimKey: k.key, Namespace: k.namespace, ClusterId: r.Cluster, Attempt: r.Attempt, CreatedAt: timestamppb.New(r.CreatedAt),
	}
}

// CancelClaim ends a claim. The cancel is durable before anything is sent, so that a later grant is never returned.
func (s *Service) CancelClaim(ctx context.Context, in *sandboxv1.CancelClaimRequest) (*sandboxv1.Claim, error) {
	p := principal.From(ctx)
	k, err := resolveKey(p, in.GetClaimKey(), in.GetNamespace(), in.GetTeam())
	if err != nil {
		return nil, withKey(err, in.GetClaimKey())
	}
	r, err := s.endDurably(ctx, p, k)
	if err != nil {
		return nil, withKey(err, k.key)
	}
	s.abort(k.hash)
	claim := k.describe(r)
	if claim.Sandbox, err = s.ledger.Terminal(ctx, r); err != nil {
		return nil, err
	}
	if claim.Sandbox.GetPodUid() != "" {
		return claim, nil // the sandbox's own record: its Pod has ended
	}
	if err := s.cancelAt(ctx, r.Cluster, k.hash, r.Attempt); err != nil {
		s.log.Info("Cancelled a claim whose cluster has not confirmed it yet", "claimKey", k.hash, "cluster", r.Cluster, "error", err.Error())
	}
	return claim, nil
}

// endDurably records the end of a claim, unless it has ended already.
func (s *Service) endDurably(ctx context.Context, p principal.Principal, k keyRef) (*ledger.Record, error) {
	for {
		h, req, err := s.visible(ctx, p, k)
		if err != nil {
			return nil, err
		}
		next := *h.Record
		if h.Record.State == ledger.Ended {
			sandbox, err := s.ledger.Terminal(ctx, h.Record)
			if err != nil || !s.beyondScope(h.Record, k, sandbox) {
				return h.Record, err
			}
			next.SandboxID = "" // the key does not return its record
		}
		now := s.clock.Now()
		next.State, next.ExpireAt = ledger.Ended, now.Add(s.retention)
		next.Terminal = ledger.Marshal(canceled(req, &next, now))
		var extra []store.Put
		if id := h.Record.SandboxID; id != next.SandboxID { // dropping the record would leave the entry of the id
			extra = append(extra, ledger.ExpireID(next.ExpireAt, id))
		}
		_, err = s.ledger.Save(ctx, k.hash, h, &next, extra...)
		switch {
		case err == nil:
			return &next, nil
		case !errors.Is(err, store.ErrConflict):
			return nil, storeFailed(err)
		}
	}
}

// cancelAt requests that a cluster end an attempt: the cluster releases a sandbox of the attempt, and refuses the attempt if it arrives
// later. The request is retried until the cluster confirms it.
func (s *Service) cancelAt(ctx context.Context, cluster, hash string, attempt int32) error {
	_, err := s.workers.Call(ctx, cluster, &federationv1.Dispatch{
		Call: &federationv1.Dispatch_Cancel{Cancel: &federationv1.CancelCall{KeyHash: hash, Attempt: attempt}},
	})
	s.endings.settle(ending{cluster: cluster, hash: hash, attempt: attempt}, err)
	if !confirmed(err) {
		return fmt.Errorf("cancelling at %s: %w", cluster, err)
	}
	return nil
}
