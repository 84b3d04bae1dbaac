// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"slices"

	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// write makes a change of the record durable and returns the record. If another replica has changed the record meanwhile, it reads that
// record and applies the change again. adopt takes over the written record as in saved. write waits only for the registry. Called with
// durable held and mu not held.
func (c *cluster) write(ctx context.Context, apply func(r *Record) error, adopt func(Record)) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	for {
		c.mu.Lock()
		next := c.recordCopy()
		c.mu.Unlock()
		if err := apply(&next); err != nil {
			return next, err
		}
		next.ClusterID = c.ID
		err := c.fleet.save(ctx, &next)
		if err == nil {
			return c.saved(next, adopt), nil
		}
		if errors.Is(err, store.ErrConflict) {
			if err = c.reload(ctx); err == nil {
				continue
			}
		}
		c.mu.Lock()
		c.unsaved = true
		c.mu.Unlock()
		return next, err
	}
}

// saved calls adopt, with mu held, for a record that is durable, and returns the record. If this replica already has another replica's
// later record, saved keeps and returns that one; because the next write would otherwise undo it.
func (c *cluster) saved(r Record, adopt func(Record)) Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Revision < c.record.Revision {
		return c.recordCopy()
	}
	c.record.Revision = r.Revision
	adopt(r)
	return r
}

// save writes a record. With several replicas it sets the record's revision, or returns store.ErrConflict.
func (f *Fleet) save(ctx context.Context, r *Record) error {
	registry, shared := f.registry.(sharedRegistry)
	if !shared {
		return f.registry.Save(ctx, *r)
	}
	revision, err := hubstate.SwapRecord(ctx, registry.shared, *r)
	if err == nil {
		r.Revision = revision
	}
	return err
}

// reload reads the record from a registry of several replicas and applies it.
func (c *cluster) reload(ctx context.Context) error {
	registry, shared := c.fleet.registry.(sharedRegistry)
	if !shared {
		return store.ErrConflict
	}
	r, found, err := hubstate.LoadRecord(ctx, registry.shared, c.ID)
	if err == nil && found {
		c.take(r)
	}
	return err
}

// follow applies the records that other replicas write, until ctx ends.
func (f *Fleet) follow(ctx context.Context) {
	if registry, shared := f.registry.(sharedRegistry); shared {
		registry.follow(ctx, f.clock, func(r Record) { f.obtain(r.ClusterID).take(r) }, func(err error) {
			f.log.Error(err, "Following what other replicas record of clusters")
		})
	}
}

// take applies a record that another replica wrote. It keeps unsaved state that this replica's stream has reported. If the record says that
// the cluster was forgotten, take clears the cluster's state. If it has a later leader, take ends this replica's stream.
func (c *cluster) take(r Record) {
	c.mu.Lock()
	before := c.recordCopy()
	if r.Revision <= before.Revision {
		c.mu.Unlock()
		return
	}
	if c.unsaved && c.via.Load() == nil && r.UID == before.UID {
		takeReported(&r, before)
	}
	c.record = r
	c.applyRecord(&r)
	gone := before.UID != "" && r.UID != before.UID
	revoked := len(r.RefusedKeys) > 0 && !slices.Equal(r.RefusedKeys, before.RefusedKeys) || r.RevokedAt.After(before.RevokedAt)
	if gone {
		c.empty()
	} else if before.Revision == 0 && r.Revoked() {
		c.known.Store(true)
	}
	s := c.session.Load()
	older := s != nil && s.via == "" && s.Incarnation() != 0 && s.Incarnation() < r.Incarnation
	c.mu.Unlock()
	if gone {
		c.fleet.log.Info("A cluster was forgotten by another replica", "cluster", c.ID)
		c.queueComplete()
	}
	if gone || revoked {
		c.fleet.endRevoked()
	}
	if older {
		c.fleet.log.Info("A later leader of the cluster is attached to another replica", "cluster", c.ID)
		s.Close()
	}
	if before.UID != r.UID {
		c.fleet.enrol()
	}
	if before.Draining != r.Draining {
		c.evaluate()
	}
}

// takeReported copies the state that streams report from this replica's record.
func takeReported(r *Record, mine Record) {
	r.Tombstones = slices.Clone(mine.Tombstones)
	for _, key := range mine.Keys {
		// Another replica may have revoked the key, or all keys that were issued until then.
		if !slices.Contains(r.RefusedKeys, key) && r.RevokedAt.Equal(mine.RevokedAt) {
			r.AddKey(key)
		}
	}
	r.Trust, r.Issuer = mine.Trust, mine.Issuer
	if r.Incarnation == mine.Incarnation && r.Term == mine.Term {
		r.ResourceVersion = mine.ResourceVersion
	}
}

// OnRevoke sets the function that the fleet calls whenever keys were revoked.
func (f *Fleet) OnRevoke(end func()) { f.onRevoke.Store(&end) }

// endRevoked ends the streams whose certificates are revoked, under every name.
func (f *Fleet) endRevoked() {
	for _, other := range f.sorted() {
		if s := other.session.Load(); s != nil && f.Refuses(s.peer) {
			s.Close()
		}
	}
	if end := f.onRevoke.Load(); end != nil {
		(*end)()
	}
}
