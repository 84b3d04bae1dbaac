// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"navix.sh/atoll/pkg/store"
)

// forgettable reports whether a tombstone has done its work.
func (s *Service) forgettable(r *record) bool {
	if !r.removed() || s.opts.Clock.Since(r.Changed) < tombstones {
		return false
	}
	for _, all := range s.state.Load().fates {
		if _, has := all[keyOf(r.Ref)]; has {
			return false
		}
	}
	return true
}

func (s *Service) forget(ctx context.Context, r *record) {
	s.remove(ctx, objectPrefix+keyOf(r.Ref), r.stored, historyPrefix+keyOf(r.Ref))
}

// remove deletes an entry of the store that has a revision, and others with it. What fails is done the next time.
func (s *Service) remove(ctx context.Context, key string, stored uint64, also ...string) {
	revision, err := s.opts.Store.Commit(ctx, store.Txn{
		If: []store.Condition{{Key: key, Revision: stored}}, Deletes: append([]string{key}, also...),
	})
	if err == nil {
		s.apply([]store.Event{{Entry: store.Entry{Key: key, Revision: revision}, Deleted: true}})
	}
}

// sweepEvery is how often forgotten clusters are looked for.
const sweepEvery = time.Hour

// sweep removes what became of the catalogue in clusters that were forgotten; because tombstones wait for it. A cluster that comes back is
// asked what it has.
func (s *Service) sweep(ctx context.Context) {
	registered := sets.New(s.opts.Fleet.ClusterIDs()...)
	for id := range s.state.Load().fates {
		if registered.Has(id) {
			continue
		}
		key := clusterPrefix + id
		if e, ok, err := s.opts.Store.Get(ctx, key); err == nil && ok {
			s.remove(ctx, key, e.Revision)
		}
	}
}
