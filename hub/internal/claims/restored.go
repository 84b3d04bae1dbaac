// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

// OnRestored looks for the sandboxes that a cluster lost when its etcd was set back: those that were answered and that its
// key index does not name. They are recorded as ended, so that nobody waits for them.
func (s *Service) OnRestored(cluster string, holders []*federationv1.KeyHolder) {
	s.retryUntilDone(&s.restored, cluster, mostLostPause, func(ctx context.Context) error {
		n, err := s.endLost(ctx, cluster, holders)
		s.log.Info("A cluster's etcd was set back; what it lost is recorded as ended", "cluster", cluster, "sandboxes", n)
		if err != nil && ctx.Err() == nil {
			s.log.Error(err, "Could not record all that a cluster has lost; it is tried again", "cluster", cluster)
		}
		return err
	})
}

// endLost goes through the whole ledger: it happens rarely, and nothing else asks for claims by cluster.
func (s *Service) endLost(ctx context.Context, cluster string, holders []*federationv1.KeyHolder) (ended int, err error) {
	named := make(map[string]bool, len(holders))
	for _, h := range holders {
		named[h.GetKeyHash()] = true
	}
	for after := ""; ; {
		entries, err := s.ledger.store.Range(ctx, claimPrefix, after, sweepMost)
		if err != nil {
			return ended, fmt.Errorf("reading the ledger: %w", err)
		}
		for _, entry := range entries {
			hash := strings.TrimPrefix(entry.Key, claimPrefix)
			r := &record{}
			if err := json.Unmarshal(entry.Value, r); err != nil {
				return ended, fmt.Errorf("claim %s in the store is damaged: %w", hash, err)
			}
			if r.Cluster != cluster || r.State != stateAnswered || named[hash] {
				continue
			}
			did, err := s.endIfLost(ctx, hash, held{r, entry.Revision})
			if err != nil {
				return ended, err
			}
			if did {
				ended++
			}
		}
		if len(entries) < sweepMost {
			return ended, nil
		}
		after = entries[len(entries)-1].Key
	}
}

// endIfLost asks the cluster before it writes: the sandbox may have ended, and its record be on its way.
func (s *Service) endIfLost(ctx context.Context, hash string, h held) (bool, error) {
	if _, err := s.lookup(ctx, hash, h.record); err == nil || reasonOf(err) != problem.NotFound {
		return false, err
	}
	req, err := h.record.request()
	if err != nil {
		return false, err
	}
	terminal := lost(req, h.record)
	terminal.FailureReason = "EtcdRestored"
	terminal.FailureMessage = "the etcd of cluster " + h.record.Cluster + " was set back to before this sandbox was claimed"
	err = s.endClaim(ctx, hash, h, *h.record, terminal, s.clock.Now().Add(s.retention))
	if errors.Is(err, store.ErrConflict) { // somebody else knows better
		return false, nil
	}
	return err == nil, err
}
