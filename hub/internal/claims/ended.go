// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/pkg/store"
)

// OnEnded stores the terminal records of a batch. It returns nil once all of them are durable. A repeated batch changes nothing. A record
// that cannot be stored yet delays no others; because another cluster, which does not respond, may have to say where its claim is. A
// terminal record that cannot be stored because of a damaged record of the ledger is logged and acknowledged; because the worker would send
// it again and again, and no later one. The cluster's history and key index still have it. cluster comes from the certificate.
func (s *Service) OnEnded(ctx context.Context, cluster string, batch *federationv1.Ended) error {
	var mu sync.Mutex
	var unread []*federationv1.EndedSandbox
	var damage error
	var group errgroup.Group
	group.SetLimit(maxAdopting)
	for _, ended := range batch.GetSandboxes() {
		if err := calls.Stamp(ended.GetSandbox(), cluster); err != nil {
			// The cluster may not report this record. The hub acknowledges it without storing it; because otherwise the worker would send it again
			// and again.
			s.log.Error(err, "Dropping a terminal record", "cluster", cluster)
			continue
		}
		group.Go(func() error {
			switch err := s.storeEnded(ctx, s.sender(cluster), ended); {
			case errors.Is(err, ledger.ErrDamaged):
				mu.Lock()
				defer mu.Unlock()
				unread, damage = append(unread, ended), err
				return nil
			case err != nil:
				return fmt.Errorf("storing the terminal record of %s: %w", ended.GetSandbox().GetId(), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if len(unread) > 0 { // one line for all; because they are acknowledged now
		s.log.Error(damage, "Could not end all claims of sandboxes that have ended, because records are damaged", "cluster", cluster,
			"claims", len(unread), "claimKey", unread[0].GetKeyHash(), "sandbox", unread[0].GetSandbox().GetId())
	}
	return nil
}

// storeEnded stores one terminal record. It returns ledger.ErrDamaged if the claim or the sandbox's entry cannot be read. Even then, a
// readable entry keeps the end, and a readable claim ends and replaces the entry of its sandbox.
func (s *Service) storeEnded(ctx context.Context, from sender, ended *federationv1.EndedSandbox) error {
	sandbox := ended.GetSandbox()
	sandbox.Phase = sandboxv1.Phase_ENDED
	hash := ended.GetKeyHash()
	holder := &federationv1.KeyHolder{
		KeyHash: hash, Attempt: ended.GetAttempt(), SandboxId: sandbox.GetId(), Ended: true, Proof: ended.GetProof(),
	}
	verdict := s.verify(from, hash, ended.GetAttempt(), ended.GetProof())
	if hash != "" && !ledger.IsKeyHash(hash) {
		s.reportUnsent(from.cluster, 1, holder)
		return nil
	}
	for {
		known, revision, unread := s.ledger.ByID(ctx, sandbox.GetId())
		if unread != nil && !errors.Is(unread, ledger.ErrDamaged) || len(known.Ended) > 0 {
			return unread
		}
		expireAt := s.clock.Now().Add(s.retention)
		h, bears, err := s.bearingOfEnded(ctx, from, ended, verdict)
		switch {
		case errors.Is(err, ledger.ErrDamaged) && revision > 0:
			if kept := s.ledger.KeepEnded(ctx, known.KeyHash, sandbox, revision, expireAt); kept != nil {
				err = kept
			}
		case err != nil:
		case holdsCurrent(h.Record, from, ended.GetAttempt(), sandbox.GetId()):
			err = s.endClaim(ctx, hash, h, *h.Record, sandbox, expireAt)
		case unread != nil:
			err = unread
		case hash != "" && (bears == unknownKey || bears == newer) && (known.KeyHash == "" || known.KeyHash == hash):
			err = s.endClaim(ctx, hash, h, *s.adopted(from.cluster, holder), sandbox, expireAt)
		case revision > 0:
			err = s.ledger.KeepEnded(ctx, known.KeyHash, sandbox, revision, expireAt)
		case bears == unsent && h.Record != nil:
			s.reportUnsent(from.cluster, 1, holder)
		default: // the worker's history has it
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// bearingOfEnded returns the record of an ended sandbox's key, and the bearing of the end on it.
func (s *Service) bearingOfEnded(
	ctx context.Context, from sender, ended *federationv1.EndedSandbox, verdict recovery.Verdict,
) (h ledger.Held, bears bearing, err error) {
	hash := ended.GetKeyHash()
	if h, err = s.ledger.Load(ctx, hash); err != nil {
		return h, "", err
	}
	bears = bearingOf(h.Record, from, ended.GetAttempt(), verdict)
	if hash != "" && bears == newer {
		bears, err = s.checkMove(ctx, from, hash, h.Record, bears)
	}
	return h, bears, err
}

// endClaim ends the claim with its sandbox's own terminal record, which also replaces the one that a cancel wrote.
func (s *Service) endClaim(
	ctx context.Context, hash string, h ledger.Held, next ledger.Record, sandbox *sandboxv1.Sandbox, expireAt time.Time,
) error {
	if next.State != ledger.Ended {
		next.ExpireAt = expireAt
	}
	next.State, next.SandboxID = ledger.Ended, sandbox.GetId()
	if !next.Adopted {
		next.Terminal = nil // for an adopted claim it shows that the hub ended it, see beyond
	}
	put, err := ledger.PutID(sandbox.GetId(), ledger.IDRecord{KeyHash: hash, Ended: ledger.Marshal(sandbox)})
	if err != nil {
		return err
	}
	_, err = s.ledger.Save(ctx, hash, h, &next, put)
	return err
}
