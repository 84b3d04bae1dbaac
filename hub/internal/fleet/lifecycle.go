// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

var (
	// ErrNoCluster reports that no cluster has the name.
	ErrNoCluster = errors.New("no such cluster")
	// ErrServing reports that the cluster cannot be forgotten now.
	ErrServing = errors.New("the cluster is attached and takes claims")
)

// load sets the cluster's record.
func (c *cluster) load(r Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record = r
	c.applyRecord(&r)
	// The hub knows that a forgotten cluster has no parts. Workers that were away still have to learn it.
	c.known.Store(r.UID == "" && len(r.Forgotten) > 0)
}

// applyRecord applies the revocations, the scope and the draining of a record. Called with mu held.
func (c *cluster) applyRecord(r *Record) {
	c.fleet.noteRevoked(c.ID, r)
	c.SetScope(routedScope(r.Scope))
	c.draining.Store(r.Draining)
}

// resetRecord resets the record for a cluster that registers. A cluster that was forgotten and may return gets its former incarnation
// and term.
func resetRecord(r *Record, uid string) {
	r.UID, r.Incarnation, r.Term, r.ResourceVersion, r.Draining = uid, 0, "", 0, false
	at := slices.IndexFunc(r.Forgotten, func(f Forgotten) bool { return f.UID == uid })
	if at >= 0 {
		r.Incarnation, r.Term = r.Forgotten[at].Incarnation, r.Forgotten[at].Term
		r.Forgotten = slices.Delete(r.Forgotten, at, at+1)
	}
}

// change makes a change of the record durable. It waits for the registry, never for the cluster.
func (c *cluster) change(ctx context.Context, apply func(r *Record) error) error {
	c.durable.Lock()
	defer c.durable.Unlock()
	var refused error
	_, err := c.write(ctx, func(r *Record) error {
		refused = apply(r)
		return refused
	}, c.adoptChange)
	if refused != nil {
		return refused
	}
	if err != nil {
		return fmt.Errorf("recording a change of cluster %s: %w", c.ID, err)
	}
	return nil
}

// adoptChange takes over what operators and certificates change in a record. Called with mu held.
func (c *cluster) adoptChange(next Record) {
	c.record.UID, c.record.Draining, c.record.Forgotten, c.record.Keys = next.UID, next.Draining, next.Forgotten, next.Keys
	c.record.RefusedKeys, c.record.RevokedAt, c.record.Scope = next.RefusedKeys, next.RevokedAt, next.Scope
	c.applyRecord(&next)
}

// Drain stops new claims to a cluster. Everything else continues.
func (f *Fleet) Drain(ctx context.Context, id string) (*sandboxv1.Cluster, error) {
	return f.setDraining(ctx, id, true)
}

// ReleaseName lets another cluster register under the name of a removed cluster. The uid and the certificate keys of the removed cluster
// stay refused.
func (f *Fleet) ReleaseName(ctx context.Context, id string) (*sandboxv1.Cluster, error) {
	c := f.cluster(id)
	if c == nil {
		return nil, ErrNoCluster
	}
	err := c.change(ctx, func(r *Record) error {
		if r.UID != "" || len(r.Forgotten) == 0 {
			return ErrNoCluster
		}
		r.Forgotten[len(r.Forgotten)-1].Released = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	f.log.Info("Another cluster may register under the name of a forgotten one", "cluster", id)
	return &sandboxv1.Cluster{Id: id, State: sandboxv1.ClusterState_FORGOTTEN, Message: "another cluster may register under the name"}, nil
}

// Undrain lets a cluster get claims again, or a forgotten cluster register again.
func (f *Fleet) Undrain(ctx context.Context, id string) (*sandboxv1.Cluster, error) {
	c := f.cluster(id)
	if c == nil {
		return nil, ErrNoCluster
	}
	if f.Registration(id) != "" {
		return f.setDraining(ctx, id, false)
	}
	err := c.change(ctx, func(r *Record) error {
		if len(r.Forgotten) == 0 {
			return ErrNoCluster
		}
		r.Forgotten[len(r.Forgotten)-1].Lifted = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	f.log.Info("A forgotten cluster may register again", "cluster", id)
	return &sandboxv1.Cluster{Id: id, State: sandboxv1.ClusterState_UNREACHABLE, Message: "may register again, and has not yet"}, nil
}

// changeRegistered changes the record of a registered cluster.
func (f *Fleet) changeRegistered(ctx context.Context, id string, change func(r *Record)) (*cluster, error) {
	c := f.cluster(id)
	if c == nil {
		return nil, ErrNoCluster
	}
	return c, c.change(ctx, func(r *Record) error {
		if r.UID == "" {
			return ErrNoCluster
		}
		change(r)
		return nil
	})
}

func (f *Fleet) setDraining(ctx context.Context, id string, draining bool) (*sandboxv1.Cluster, error) {
	c, err := f.changeRegistered(ctx, id, func(r *Record) { r.Draining = draining })
	if err != nil {
		return nil, err
	}
	f.log.Info("A cluster's draining has changed", "cluster", id, "draining", draining)
	c.evaluate()
	return c.proto(), nil
}

// Forget removes a cluster and revokes it. First its tombstone becomes durable, then its stream ends, then its segments leave every view.
// Forget never waits for the cluster, whose sandboxes keep running. From then on the hub refuses the cluster's name and uid, and the keys
// of its certificates under any name, until Undrain reverts it. ReleaseName gives only the name to another cluster.
func (f *Fleet) Forget(ctx context.Context, id string) (*sandboxv1.Cluster, error) {
	c := f.cluster(id)
	if c == nil {
		return nil, ErrNoCluster
	}
	var last *sandboxv1.Cluster
	err := c.change(ctx, func(r *Record) error {
		if last = c.proto(); last == nil {
			return ErrNoCluster
		}
		if !forgettable(c.session.Load() != nil && c.alive(f.now()), r.Draining) {
			return ErrServing
		}
		r.Forgotten = append(r.Forgotten, Forgotten{UID: r.UID, Incarnation: r.Incarnation, Term: r.Term, At: f.clock.Now().UTC(), Keys: r.Keys})
		r.Forgotten = r.Forgotten[max(0, len(r.Forgotten)-hubstate.MaxForgotten):]
		r.UID, r.Draining, r.Tombstones, r.Keys, r.Trust, r.Issuer = "", false, nil, nil, "", ""
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.vanish()
	f.enrol()
	f.endRevoked()
	f.log.Info("A cluster was forgotten", "cluster", id)
	last.State, last.Message = sandboxv1.ClusterState_FORGOTTEN, "removed from the federation"
	return last, nil
}

// vanish clears the cluster's state, which leaves an empty name, and queues its removal for all workers.
func (c *cluster) vanish() {
	c.mu.Lock()
	c.empty()
	c.mu.Unlock()
	c.queueComplete()
}

// empty ends the cluster's session and clears its state. Called with mu held. Callers then call queueComplete.
func (c *cluster) empty() {
	if s := c.session.Swap(nil); s != nil {
		s.end()
		c.relayDetached(s)
	}
	c.publish(update{removed: slices.Clone(c.holdings.parts)})
	c.record.Tombstones = nil
	c.last, c.version, c.hosting, c.contacts, c.suspects, c.degraded = streamID{}, "", nil, nil, nil, ""
	c.order = segment.Order{}
	c.inFlight.covered(c.order)
	c.known.Store(true)
	c.unsent.Store(0)
	c.liveness.clear()
	c.SetHealth(router.Unreachable)
}

// queueComplete queues all of the cluster's segments for all other workers, which shows them also what it does not have. Workers that share
// no Env with the cluster now may still show it, from an earlier connection.
func (c *cluster) queueComplete() {
	for _, other := range c.fleet.sorted() {
		if receiver := other.session.Load(); receiver != nil && other != c {
			receiver.outbox.queueComplete(c)
		}
	}
}

// Registration returns the kube-system uid of the cluster that now has a name, or "" if none has it.
func (f *Fleet) Registration(id string) string {
	c := f.cluster(id)
	if c == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.UID
}

// Forgotten reports whether the cluster with a name and uid was forgotten. If uid is empty, it reports whether the name is free because its
// cluster was forgotten.
func (f *Fleet) Forgotten(id, uid string) bool {
	c := f.cluster(id)
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if uid == "" {
		last := len(c.record.Forgotten) - 1
		return c.record.UID == "" && last >= 0 && !c.record.Forgotten[last].Lifted
	}
	return c.record.Forgot(uid)
}
