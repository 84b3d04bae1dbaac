// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

// OnRestored finds the sandboxes that a cluster lost when its etcd was restored: those that were returned and that its key index does not
// name. It records them as ended, so that no caller waits for them.
func (s *Service) OnRestored(cluster string, holders []*federationv1.KeyHolder) {
	s.background.RetryUntilDone(&s.restored, cluster, mostLostPause, s.forgets(cluster), func(ctx context.Context) error {
		n, err := s.endLost(ctx, cluster, holders)
		s.log.Info("A cluster's etcd was set back; what it lost is recorded as ended", "cluster", cluster, "sandboxes", n)
		if err != nil && ctx.Err() == nil {
			s.log.Error(err, "Could not record all that a cluster has lost; it is tried again", "cluster", cluster)
		}
		return err
	})
}

// endLost records lost sandboxes as ended. It reads the whole ledger; because a restore is rare, and nothing else looks up claims by
// cluster. Records that cannot be read stay.
func (s *Service) endLost(ctx context.Context, cluster string, holders []*federationv1.KeyHolder) (ended int, err error) {
	named := make(map[string]bool, len(holders))
	for _, h := range holders {
		named[h.GetKeyHash()] = true
	}
	var unreadable error
	err = s.ledger.Each(ctx, func(hash string, h ledger.Held, err error) error {
		if r := h.Record; err == nil && r.Cluster == cluster && r.State == ledger.Returned && !named[hash] {
			var did bool
			if did, err = s.endIfLost(ctx, hash, h); did {
				ended++
			}
		}
		if errors.Is(err, ledger.ErrDamaged) {
			unreadable = err
			return nil
		}
		return err
	})
	if unreadable != nil { // one line for all
		s.log.Error(unreadable, "Could not check for all claims whether a cluster has lost them, because records are damaged", "cluster", cluster)
	}
	return ended, err
}

// endIfLost looks up the claim at the cluster before it writes; because the sandbox may have ended with its terminal record in flight.
func (s *Service) endIfLost(ctx context.Context, hash string, h ledger.Held) (bool, error) {
	if _, err := s.lookup(ctx, hash, h.Record); err == nil || reasonOf(err) != problem.NotFound {
		return false, err
	}
	req, err := h.Record.ParseRequest()
	if err != nil {
		return false, err
	}
	terminal := lost(req, h.Record)
	terminal.FailureReason = "EtcdRestored"
	terminal.FailureMessage = "the etcd of cluster " + h.Record.Cluster + " was set back to before this sandbox was claimed"
	err = s.endClaim(ctx, hash, h, *h.Record, terminal, s.clock.Now().Add(s.retention))
	if errors.Is(err, store.ErrConflict) { // another write came first
		return false, nil
	}
	return err == nil, err
}
