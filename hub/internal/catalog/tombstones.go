// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"navix.sh/atoll/pkg/store"
)

// forgettable reports whether a tombstone is no longer needed.
func (s *Service) forgettable(r *record) bool {
	if !r.removed() || s.opts.Clock.Since(r.Changed) < tombstones {
		return false
	}
	for _, all := range s.state.Load().statuses {
		if _, has := all[keyOf(r.Ref)]; has {
			return false
		}
	}
	return true
}

func (s *Service) forget(ctx context.Context, r *record) {
	s.remove(ctx, objectPrefix+keyOf(r.Ref), r.stored, historyPrefix+keyOf(r.Ref))
}

// remove deletes an entry of the store if it has the given revision, and others with it. If that fails, a later round retries it.
func (s *Service) remove(ctx context.Context, key string, stored uint64, also ...string) {
	revision, err := s.opts.Store.Commit(ctx, store.Txn{
		If: []store.Condition{{Key: key, Revision: stored}}, Deletes: append([]string{key}, also...),
	})
	if err == nil {
		s.apply([]store.Event{{Entry: store.Entry{Key: key, Revision: revision}, Deleted: true}})
	}
}

// sweepEvery is the interval at which the status of forgotten clusters is removed.
const sweepEvery = time.Hour

// sweep removes the status of forgotten clusters; because tombstones wait for it. A cluster that returns is asked which revisions it has.
func (s *Service) sweep(ctx context.Context) {
	registered := sets.New(s.opts.Fleet.ClusterIDs()...)
	for id := range s.state.Load().statuses {
		if registered.Has(id) {
			continue
		}
		key := clusterPrefix + id
		if e, ok, err := s.opts.Store.Get(ctx, key); err == nil && ok {
			s.remove(ctx, key, e.Revision)
		}
	}
}
