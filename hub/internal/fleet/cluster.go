// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/chanmutex"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

// cluster is the hub's state of one cluster. It has its own locks, so that a blocked cluster does not block others (I7). Lock order:
// durable, mu, a shard, a slot, then the leaves (liveness, inFlight, an outbox).
type cluster struct {
	router.Cluster // id, health and age; views refer to them
	fleet          *Fleet

	session atomic.Pointer[Session] // attached now, here or to a peer; written under mu
	via     atomic.Pointer[string]  // the peer of the last relayed session; nil: the last session was a stream of this replica

	// durable serialises hellos and writes of the record. It is held while the registry writes.
	durable chanmutex.Mutex

	mu      sync.Mutex // never held while anything blocks
	record  Record
	unsaved bool
	version string                // of the worker
	hosting *federationv1.Hosting // nil: it runs in its cluster
	reported
	contacts []contact
	begins   allowance // guarded by durable
	degraded string    // the reason; empty: not degraded

	known    atomic.Bool  // the hub knows all its parts: a complete report has counted in this hub process, or the cluster was forgotten
	met      atomic.Bool  // it has said Hello to this hub process, or a peer has relayed its report
	draining atomic.Bool  // as the record says
	unsent   atomic.Int64 // claims that it reported and that this hub did not send to it, since the hub started
	liveness liveness
	inFlight inFlight
}

// reported is the state that a cluster's reports have produced. The cluster's mu guards it.
type reported struct {
	last     streamID // of the last stream that was attached
	holdings holdings
	scratch  []router.Candidate       // of a view under construction
	order    segment.Order            // of the last report that counted
	suspects map[segment.Key]struct{} // omitted from one complete report whose removals need a second one
}

func newCluster(f *Fleet, id string) *cluster {
	c := &cluster{fleet: f}
	c.ID = id
	c.SetHealth(router.Unreachable)
	c.liveness.was = router.Unreachable
	return c
}

// markChanged marks another cluster's part of an Env as changed in the outbox of this cluster's stream, if there is a stream.
func (c *cluster) markChanged(env *slot, about *cluster, at noted, w woken) {
	if s := c.session.Load(); s != nil {
		if s.outbox.mark(env, about, at) {
			w[&s.outbox] = struct{}{}
		}
	}
}

// stale reports whether the hub marks this cluster's segments as stale for other clusters.
func (c *cluster) stale() bool { return isStale(c.Health()) }

func isStale(h router.Health) bool { return !h.Eligible() && h != router.Draining }

// saveIfDirty saves the state other than identity. It does nothing while a hello or a begin is saving the record.
func (c *cluster) saveIfDirty(ctx context.Context) error {
	if !c.durable.TryLock() {
		return nil
	}
	defer c.durable.Unlock()
	c.mu.Lock()
	dirty, mine := c.unsaved, c.recordCopy()
	c.unsaved = false
	c.mu.Unlock()
	if !dirty {
		return nil
	}
	_, err := c.write(ctx, func(r *Record) error {
		if c.via.Load() != nil || r.UID != mine.UID {
			return errSuperseded
		}
		takeReported(r, mine)
		return nil
	}, func(written Record) {
		if !c.unsaved { // otherwise the cluster has reported again in the meantime
			takeReported(&c.record, written)
		}
	})
	if errors.Is(err, errSuperseded) {
		return nil
	}
	return err
}

// errSuperseded means that the cluster now reports to another replica, or that another cluster has the name.
var errSuperseded = errors.New("the change is superseded")

func (c *cluster) recordCopy() Record {
	r := c.record
	r.Tombstones, r.Forgotten, r.Keys = slices.Clone(r.Tombstones), slices.Clone(r.Forgotten), slices.Clone(r.Keys)
	r.RefusedKeys = slices.Clone(r.RefusedKeys)
	return r
}

// addTombstones records that the cluster no longer has Envs. Called with mu held.
func (c *cluster) addTombstones(keys []segment.Key) {
	if len(keys) == 0 {
		return
	}
	again := make(map[segment.Key]struct{}, len(keys))
	for _, k := range keys {
		again[k] = struct{}{}
	}
	c.dropTombstones(again)
	stones := slices.Concat(c.record.Tombstones, keys)
	c.record.Tombstones = slices.Clone(stones[max(0, len(stones)-maxTombstones):])
	c.unsaved = true
}

// removeTombstones removes the tombstones of Envs that the cluster has again. Called with mu held.
func (c *cluster) removeTombstones(alive []change) {
	if len(alive) == 0 || len(c.record.Tombstones) == 0 {
		return
	}
	named := make(map[segment.Key]struct{}, len(alive))
	for _, ch := range alive {
		named[ch.segment.Key()] = struct{}{}
	}
	c.dropTombstones(named)
}

func (c *cluster) dropTombstones(of map[segment.Key]struct{}) {
	n := len(c.record.Tombstones)
	c.record.Tombstones = slices.DeleteFunc(c.record.Tombstones, func(k segment.Key) bool {
		_, is := of[k]
		return is
	})
	c.unsaved = c.unsaved || len(c.record.Tombstones) != n
}
