// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

const (
	// lookEvery is the interval at which the hub checks which clusters are attached here, and deliverers check whether something is due.
	lookEvery = time.Second
	// stepEvery is the delay after which a deliverer notices changes that no record shows, such as a new scope of its cluster.
	stepEvery = 10 * time.Second
	// restFactor determines how long a deliverer rests after a step: this factor times the step's duration, at most lookEvery. A step examines
	// the whole catalogue and stores all of the cluster's statuses, so while much changes, one step should cover many changes.
	restFactor = 3
	// askEvery is the interval at which a cluster is asked which revisions it has, so that objects that were removed there by hand are
	// restored.
	askEvery = time.Minute
	// retryAfter is the pause before a part that a cluster did not take is sent again.
	retryAfter = 20 * time.Second
)

// deliver runs a deliverer for each cluster that is attached here.
func (s *Service) deliver(ctx context.Context) {
	var deliverers sync.WaitGroup
	defer deliverers.Wait()
	for {
		for _, id := range s.opts.Fleet.ClusterIDs() {
			if !s.opts.Connected(id) {
				continue
			}
			if c := s.deliverer(id); c != nil {
				deliverers.Go(func() { c.run(ctx) })
			}
		}
		if !s.sleep(ctx, lookEvery) {
			return
		}
	}
}

// deliverer delivers one cluster's part.
type deliverer struct {
	*Service
	cluster string
	wake    chan struct{}

	held     map[string]int32 // revisions by key, as the cluster reported; nil: not known
	asked    time.Time
	moved    time.Time // when the last step began
	unsaved  bool      // the latest statuses are not stored yet
	tried    map[string]attempt
	statuses statuses
}

// attempt is a revision that was sent and not taken.
type attempt struct {
	revision int32
	at       time.Time
}

// deliverer returns a new deliverer for a cluster, or nil if the cluster has one.
func (s *Service) deliverer(cluster string) *deliverer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wakes[cluster] != nil {
		return nil
	}
	c := &deliverer{Service: s, cluster: cluster, wake: make(chan struct{}, 1), tried: map[string]attempt{}, statuses: statuses{}}
	s.wakes[cluster] = c.wake
	maps.Copy(c.statuses, s.state.Load().statuses[cluster])
	return c
}

func (c *deliverer) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.wakes, c.cluster)
}

// run delivers the cluster's part while the cluster is attached here.
func (c *deliverer) run(ctx context.Context) {
	defer c.end()
	for woken := true; ctx.Err() == nil && c.opts.Connected(c.cluster); {
		if woken || c.due() {
			c.moved = c.opts.Clock.Now()
			if err := c.step(ctx); err != nil && ctx.Err() == nil {
				c.held = nil
				c.opts.Log.Info("Could not deliver a cluster's part of the catalogue; it is tried again", "cluster", c.cluster, "error", err.Error())
			}
			if !c.sleep(ctx, min(restFactor*c.opts.Clock.Since(c.moved), lookEvery)) {
				return
			}
		}
		timer := c.opts.Clock.NewTimer(lookEvery)
		select {
		case <-ctx.Done():
		case <-c.wake:
			woken = true
		case <-timer.C():
			woken = false
		}
		timer.Stop()
	}
}

// due reports whether a step has something to do although no record has changed. An empty catalogue has nothing.
func (c *deliverer) due() bool {
	if len(c.state.Load().records) == 0 {
		return false
	}
	now := c.opts.Clock.Now()
	for _, t := range c.tried {
		if now.Sub(t.at) >= retryAfter {
			return true
		}
	}
	return c.held == nil || c.unsaved || now.Sub(c.moved) >= stepEvery
}

func (c *deliverer) step(ctx context.Context) error {
	state, now := c.state.Load(), c.opts.Clock.Now()
	if len(state.records) == 0 {
		c.held = nil
		return nil // an unused catalogue costs nothing
	}
	if c.held == nil || now.Sub(c.asked) >= askEvery {
		if err := c.ask(ctx); err != nil {
			return err
		}
		c.asked = now
	}
	own := false
	if c.opts.Source != nil {
		var known bool
		if own, known = c.opts.Source.Own(c.cluster); !known {
			return errors.New("which cluster is the hub's own is not known yet")
		}
	}
	have, gone, withheld := state.parts(c.cluster, own, func(r manifest.Ref) bool {
		return c.opts.Fleet.Serves(c.cluster, segment.Key{Namespace: r.Namespace, Name: r.Name})
	})
	todo := decide(have, gone, c.held, c.statuses, func(key string, revision int32) bool {
		t := c.tried[key]
		return t.revision != revision || now.Sub(t.at) >= retryAfter
	})
	for _, r := range withheld {
		delete(c.tried, keyOf(r))
		c.statuses[keyOf(r)] = clusterStatus{State: sandboxv1.CatalogCluster_REFUSED, Reason: "OutOfScope",
			Message: "the cluster may not serve this Env", Tried: state.records[keyOf(r)].Revision}
	}
	c.newer(state, todo.newer)
	err := c.send(ctx, todo)
	c.forget(have, withheld)
	if own {
		c.recordOwn(state)
	}
	c.save(ctx)
	return err
}

// newer records the revisions of the cluster that are later than the catalogue's.
func (c *deliverer) newer(state *state, revisions map[string]int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, at := range revisions {
		delete(c.tried, key)
		c.floors[key] = max(c.floors[key], at)
		c.statuses[key] = clusterStatus{Revision: at, State: sandboxv1.CatalogCluster_REFUSED, Reason: "NewerInCluster",
			Message: "the cluster has a later revision: the hub's store was set back. Apply the manifest again to decide what holds",
			Tried:   state.records[key].Revision}
	}
}

// recordOwn records the status of the objects that this cluster, the hub's own, has without a delivery.
func (c *deliverer) recordOwn(state *state) {
	for key, r := range state.records {
		if r.Source != nil && r.Ref.Kind == manifest.EnvKind && r.in.Has(c.cluster) {
			c.statuses[key] = r.owned()
		}
	}
}

// ask requests the revisions that the cluster has of this catalogue. Objects of another catalogue count as absent; because the worker then
// refuses what is sent, and callers see the refusal.
func (c *deliverer) ask(ctx context.Context) error {
	result, err := c.call(ctx, c.cluster, &federationv1.CatalogCall{Mode: federationv1.CatalogCall_LIST})
	if err != nil {
		return err
	}
	held := map[string]int32{}
	for _, o := range result.GetHeld() {
		if o.GetCatalog() != c.id {
			continue
		}
		held[keyOf(manifest.Ref{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()})] = o.GetRevision()
	}
	c.held = held
	for key, revision := range held {
		if f, known := c.statuses[key]; !known || f.State == sandboxv1.CatalogCluster_APPLIED && f.Revision != revision {
			c.statuses[key] = notDelivered(revision)
		}
	}
	return nil
}

// call sends one call to a cluster.
func (s *Service) call(ctx context.Context, cluster string, call *federationv1.CatalogCall) (*federationv1.CatalogResult, error) {
	call.Catalog = s.id
	answer, err := calls.Workers{Dispatcher: s.opts.Calls}.Call(ctx, cluster, &federationv1.Dispatch{
		Call: &federationv1.Dispatch_Catalog{Catalog: call},
	})
	return answer.GetCatalog(), err
}

func (c *deliverer) send(ctx context.Context, todo pending) error {
	for i, parts := range [][]part{todo.apply, todo.remove} {
		all, err := batches(c.cluster, parts)
		if err != nil {
			return err
		}
		for _, batch := range all {
			call := &federationv1.CatalogCall{Mode: federationv1.CatalogCall_APPLY, Objects: batch}
			if i == 1 {
				call.Objects, call.Removed = nil, batch
			}
			result, err := c.call(ctx, c.cluster, call)
			if err != nil {
				return err
			}
			c.take(batch, result)
		}
	}
	return nil
}

var states = map[federationv1.CatalogOutcome_State]sandboxv1.CatalogCluster_State{
	federationv1.CatalogOutcome_APPLIED:  sandboxv1.CatalogCluster_APPLIED,
	federationv1.CatalogOutcome_CONFLICT: sandboxv1.CatalogCluster_CONFLICT,
	federationv1.CatalogOutcome_PENDING:  sandboxv1.CatalogCluster_PENDING,
}

// take records the outcomes of the objects that were sent, and of no others (I15).
func (c *deliverer) take(sent []*federationv1.CatalogObject, result *federationv1.CatalogResult) {
	outcomes := map[string]*federationv1.CatalogOutcome{}
	for _, o := range result.GetOutcomes() {
		outcomes[keyOf(manifest.Ref{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()})] = o
	}
	for _, o := range sent {
		key := keyOf(manifest.Ref{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()})
		got := outcomes[key]
		switch got.GetState() {
		case federationv1.CatalogOutcome_REMOVED, federationv1.CatalogOutcome_ABSENT:
			delete(c.statuses, key)
			delete(c.held, key)
			delete(c.tried, key)
			continue
		case federationv1.CatalogOutcome_APPLIED:
			c.held[key] = o.GetRevision()
			delete(c.tried, key)
		default:
			c.tried[key] = attempt{o.GetRevision(), c.opts.Clock.Now()}
		}
		c.statuses[key] = clusterStatus{
			Revision: c.held[key], State: cmp.Or(states[got.GetState()], sandboxv1.CatalogCluster_REFUSED),
			Reason: clip.Text(got.GetReason(), maxMessage), Message: clip.Text(got.GetMessage(), maxMessage),
			Tried: o.GetRevision(), Generation: got.GetGeneration(),
		}
	}
}

// forget drops the status of objects that the cluster neither has nor must have.
func (c *deliverer) forget(have []part, withheld []manifest.Ref) {
	concerned := map[string]bool{}
	for _, p := range have {
		concerned[keyOf(p.ref)] = true
	}
	for _, r := range withheld {
		concerned[keyOf(r)] = true
	}
	for key := range c.statuses {
		if _, has := c.held[key]; !has && !concerned[key] {
			delete(c.statuses, key)
			delete(c.tried, key)
		}
	}
}

// save stores the cluster's statuses for the other replicas and for callers. After a failure a later step stores them.
func (c *deliverer) save(ctx context.Context) {
	if c.unsaved = !c.statuses.same(c.state.Load().statuses[c.cluster]); !c.unsaved {
		return
	}
	value, err := json.Marshal(c.statuses)
	if err == nil {
		puts := []store.Put{{Key: clusterPrefix + c.cluster, Value: value}}
		if _, err = c.opts.Store.Commit(ctx, store.Txn{Puts: puts, Lazy: true}); err == nil {
			c.setStatuses(c.cluster, maps.Clone(c.statuses))
			c.unsaved = false
			return
		}
	}
	c.opts.Log.Info("Could not store the status of the catalogue in a cluster", "cluster", c.cluster, "error", err.Error())
}
