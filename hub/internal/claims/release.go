// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

// Ended returns the terminal record of a sandbox with a key, or nil if none is kept. It works without a quorum of the store; because the
// cluster has a record that this read misses.
func (s *Service) Ended(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	ended, err := s.ledger.Ended(store.AllowStale(ctx), id)
	if err != nil {
		return nil, storeFailed(err)
	}
	return ended, nil
}

// End ends a sandbox. As with a cancel, the end of a sandbox with a claim key is durable before it is sent: a cluster that is away ends the
// sandbox when it returns. While a shared store does not respond, the cluster's confirmation is enough. The error says whether an
// unconfirmed release will be repeated.
func (s *Service) End(ctx context.Context, cluster, id string) (*sandboxv1.Sandbox, error) {
	recorded, unsure := s.endByID(ctx, id)
	if unsure != nil && !s.unavailable(unsure) {
		return nil, unsure
	}
	sandbox, repeated, err := s.release(ctx, cluster, id)
	if err == nil {
		return sandbox, nil
	}
	e := *problem.FromError(err)
	switch {
	case e.Reason == problem.NotFound && !recorded:
		return nil, err
	case unsure != nil:
		return nil, unsure
	case recorded:
		e.Message += "; the release is recorded, and the sandbox ends when the cluster is back"
	case repeated:
		e.Message += "; the hub repeats the release until the cluster confirms it, but forgets it when it restarts; because the sandbox has no " +
			"claim key"
	default:
		e.Message += "; the release is not recorded, because too many others wait for their clusters: repeat it"
	}
	return nil, &e
}

// Claimed returns a sandbox with a claim key as the record of its claim describes it, including its user and cluster. It returns nil if no
// claim has the sandbox.
func (s *Service) Claimed(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	if err := s.settleID(ctx, id); err != nil {
		return nil, err
	}
	_, h, err := s.holding(ctx, id)
	if err != nil || h.Record == nil {
		return nil, err
	}
	req, err := h.Record.ParseRequest()
	if err != nil {
		return nil, storeFailed(err)
	}
	return sketchOf(req, h.Record, sandboxv1.Phase_RUNNING), nil
}

// holding returns the record of the claim that has a sandbox, and the hash of its key. The record is nil if no claim has the sandbox.
func (s *Service) holding(ctx context.Context, id string) (hash string, h ledger.Held, err error) {
	known, _, err := s.ledger.ByID(ctx, id)
	if err != nil {
		return "", h, storeFailed(err)
	}
	if known.KeyHash == "" {
		return "", h, nil
	}
	if h, err = s.ledger.Load(ctx, known.KeyHash); err != nil {
		return "", h, storeFailed(err)
	}
	if h.Record != nil && h.Record.SandboxID != id {
		return "", ledger.Held{}, nil
	}
	return known.KeyHash, h, nil
}

// endByID ends the claim of a sandbox, if it has a key. It reports whether the end is recorded.
func (s *Service) endByID(ctx context.Context, id string) (recorded bool, err error) {
	if err := s.settleID(ctx, id); err != nil {
		return false, err
	}
	for {
		hash, h, err := s.holding(ctx, id)
		if err != nil || h.Record == nil || h.Record.State != ledger.Returned {
			return err == nil && h.Record != nil && h.Record.State == ledger.Ended, err
		}
		req, err := h.Record.ParseRequest()
		if err != nil {
			return false, storeFailed(err)
		}
		now := s.clock.Now()
		next := *h.Record
		next.State, next.ExpireAt = ledger.Ended, now.Add(s.retention)
		next.Terminal = ledger.Marshal(releasedEnd(req, &next, now))
		switch _, err = s.ledger.Save(ctx, hash, h, &next); {
		case err == nil:
			return true, nil
		case !errors.Is(err, store.ErrConflict):
			return false, storeFailed(err)
		}
	}
}

// release requests that a cluster end a sandbox. It reports whether an unconfirmed request will be repeated.
func (s *Service) release(ctx context.Context, cluster, id string) (sandbox *sandboxv1.Sandbox, repeated bool, err error) {
	sandbox, err = s.workers.Sandbox(ctx, cluster, &federationv1.Dispatch{
		Call: &federationv1.Dispatch_Release{Release: &sandboxv1.ReleaseSandboxRequest{Id: id}},
	})
	repeated = s.endings.settle(ending{cluster: cluster, id: id}, err)
	return sandbox, repeated, err
}
