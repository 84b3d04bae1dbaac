// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
)

// expectationsTTL is how long an unobserved create or delete holds a pool's
// scaling back. It only matters when an event never comes.
const expectationsTTL = 5 * time.Minute

// Expectations remembers what was written and not yet seen in the informer, so
// that a reconcile on an old cache neither creates a Pod twice nor acts on a Pod
// that it has just changed.
//
// Pods are expected one by one, by the name chosen for them or by their uid. A
// counter could be satisfied by the event of some other Pod.
type Expectations struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	pools map[types.NamespacedName]*expected
}

type expected struct {
	creations map[string]time.Time
	deletions map[types.UID]time.Time
	writes    map[types.UID]written
}

type written struct {
	resourceVersion string
	at              time.Time
}

// NewExpectations returns Expectations that expect nothing.
func NewExpectations(clk clock.PassiveClock) *Expectations {
	return &Expectations{clock: clk, pools: map[types.NamespacedName]*expected{}}
}

// ExpectCreation is called before a Pod is created under this name.
func (e *Expectations) ExpectCreation(pool types.NamespacedName, pod string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of(pool).creations[pod] = e.clock.Now()
}

// ExpectDeletion is called before a Pod is deleted.
func (e *Expectations) ExpectDeletion(pool types.NamespacedName, pod types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of(pool).deletions[pod] = e.clock.Now()
}

// Wrote is called with the resourceVersion that a patch answered.
func (e *Expectations) Wrote(pool types.NamespacedName, pod types.UID, resourceVersion string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of(pool).writes[pod] = written{resourceVersion: resourceVersion, at: e.clock.Now()}
}

// CreationSeen is called when the Pod is in the cache, and when its creation
// failed.
func (e *Expectations) CreationSeen(pool types.NamespacedName, pod string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p, ok := e.pools[pool]; ok {
		delete(p.creations, pod)
		e.dropIfEmpty(pool, p)
	}
}

// DeletionSeen is called when the cache shows the Pod terminating or no longer
// has it, and when its deletion failed.
func (e *Expectations) DeletionSeen(pool types.NamespacedName, pod types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p, ok := e.pools[pool]; ok {
		delete(p.deletions, pod)
		e.dropIfEmpty(pool, p)
	}
}

// PodGone forgets all about a Pod.
func (e *Expectations) PodGone(pool types.NamespacedName, name string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p, ok := e.pools[pool]; ok {
		delete(p.creations, name)
		delete(p.deletions, uid)
		delete(p.writes, uid)
		e.dropIfEmpty(pool, p)
	}
}

// Settled reports whether every create and delete has been seen, or is so old
// that it never will be.
func (e *Expectations) Settled(pool types.NamespacedName) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.pools[pool]
	if !ok {
		return true
	}
	for name, at := range p.creations {
		if e.expired(at) {
			delete(p.creations, name)
		}
	}
	for uid, at := range p.deletions {
		if e.expired(at) {
			delete(p.deletions, uid)
		}
	}
	settled := len(p.creations) == 0 && len(p.deletions) == 0
	e.dropIfEmpty(pool, p)
	return settled
}

// Stale reports whether the cache still holds a Pod as it was before our last
// write to it, or before we deleted it.
func (e *Expectations) Stale(pool types.NamespacedName, uid types.UID, cached string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.pools[pool]
	if !ok {
		return false
	}
	if at, ok := p.deletions[uid]; ok && !e.expired(at) {
		return true
	}
	w, ok := p.writes[uid]
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(cached, w.resourceVersion)
	if err == nil && order < 0 && !e.expired(w.at) {
		return true
	}
	delete(p.writes, uid)
	e.dropIfEmpty(pool, p)
	return false
}

// Forget drops what is known of a pool that is gone.
func (e *Expectations) Forget(pool types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pools, pool)
}

func (e *Expectations) of(pool types.NamespacedName) *expected {
	p, ok := e.pools[pool]
	if !ok {
		p = &expected{
			creations: map[string]time.Time{},
			deletions: map[types.UID]time.Time{},
			writes:    map[types.UID]written{},
		}
		e.pools[pool] = p
	}
	return p
}

func (e *Expectations) expired(at time.Time) bool {
	return e.clock.Since(at) > expectationsTTL
}

func (e *Expectations) dropIfEmpty(pool types.NamespacedName, p *expected) {
	if len(p.creations) == 0 && len(p.deletions) == 0 && len(p.writes) == 0 {
		delete(e.pools, pool)
	}
}
