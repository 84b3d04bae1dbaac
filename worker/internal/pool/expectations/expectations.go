// SPDX-License-Identifier: Apache-2.0

// Package expectations remembers the writes of a pool reconciler that its cache does not show yet. With a stale cache the reconciler then
// neither creates a Pod twice nor acts on a Pod that was just changed.
//
// In: creates and deletes before they are sent, patches after their response, and the informer's events. Out: whether all creates and
// deletes of a pool were seen, and whether the cache has a Pod as it was before the latest write.
//
// # Rules
//
//   - Pods are expected one by one, by the name chosen for them or by their uid; because the event of another Pod could satisfy a counter:
//     TestExpectationsSettle.
//   - An expectation expires after 5 min; because its event will never come: TestExpectationsSettle, TestStalePods.
//   - I10: observed writes take no memory: TestExpectationsAreBounded.
package expectations

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
)

// ttl is how long an unobserved write holds a pool back.
const ttl = 5 * time.Minute

// Expectations holds the expectations of all pools.
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

// New returns Expectations that expect nothing.
func New(clk clock.PassiveClock) *Expectations {
	return &Expectations{clock: clk, pools: map[types.NamespacedName]*expected{}}
}

// ExpectCreation records that a Pod will be created under this name.
func (e *Expectations) ExpectCreation(pool types.NamespacedName, pod string) {
	e.expect(pool, func(p *expected) { p.creations[pod] = e.clock.Now() })
}

// ExpectDeletion records that a Pod will be deleted.
func (e *Expectations) ExpectDeletion(pool types.NamespacedName, pod types.UID) {
	e.expect(pool, func(p *expected) { p.deletions[pod] = e.clock.Now() })
}

// Wrote records the resourceVersion that a patch returned.
func (e *Expectations) Wrote(pool types.NamespacedName, pod types.UID, resourceVersion string) {
	e.expect(pool, func(p *expected) { p.writes[pod] = written{resourceVersion: resourceVersion, at: e.clock.Now()} })
}

// CreationSeen records that the cache has the Pod, or that its creation failed.
func (e *Expectations) CreationSeen(pool types.NamespacedName, pod string) {
	e.drop(pool, func(p *expected) { delete(p.creations, pod) })
}

// DeletionSeen records that the cache shows the Pod terminating or no longer has it, or that its deletion failed.
func (e *Expectations) DeletionSeen(pool types.NamespacedName, pod types.UID) {
	e.drop(pool, func(p *expected) { delete(p.deletions, pod) })
}

// PodGone drops all expectations of a Pod.
func (e *Expectations) PodGone(pool types.NamespacedName, name string, uid types.UID) {
	e.drop(pool, func(p *expected) {
		delete(p.creations, name)
		delete(p.deletions, uid)
		delete(p.writes, uid)
	})
}

// Forget drops all entries of a deleted pool.
func (e *Expectations) Forget(pool types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pools, pool)
}

// Settled reports whether every create and delete has been seen, or has expired. It also drops expired writes; because a Pod may have been
// gone before its last write was recorded.
func (e *Expectations) Settled(pool types.NamespacedName) bool {
	settled := true
	e.drop(pool, func(p *expected) {
		maps.DeleteFunc(p.writes, func(_ types.UID, w written) bool { return e.expired(w.at) })
		maps.DeleteFunc(p.creations, func(_ string, at time.Time) bool { return e.expired(at) })
		maps.DeleteFunc(p.deletions, func(_ types.UID, at time.Time) bool { return e.expired(at) })
		settled = len(p.creations) == 0 && len(p.deletions) == 0
	})
	return settled
}

// Stale reports whether the cache still has a Pod as it was before our last write to it or our delete of it.
func (e *Expectations) Stale(pool types.NamespacedName, uid types.UID, cached string) (stale bool) {
	e.drop(pool, func(p *expected) {
		if at, ok := p.deletions[uid]; ok && !e.expired(at) {
			stale = true
			return
		}
		w, ok := p.writes[uid]
		if !ok {
			return
		}
		order, err := resourceversion.CompareResourceVersion(cached, w.resourceVersion)
		if stale = err == nil && order < 0 && !e.expired(w.at); !stale {
			delete(p.writes, uid)
		}
	})
	return stale
}

func (e *Expectations) expect(pool types.NamespacedName, change func(*expected)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.pools[pool]
	if !ok {
		p = &expected{creations: map[string]time.Time{}, deletions: map[types.UID]time.Time{}, writes: map[types.UID]written{}}
		e.pools[pool] = p
	}
	change(p)
}

// drop changes the expectations of a pool, if there are any, and drops the pool when none are left.
func (e *Expectations) drop(pool types.NamespacedName, change func(*expected)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.pools[pool]
	if !ok {
		return
	}
	change(p)
	if len(p.creations) == 0 && len(p.deletions) == 0 && len(p.writes) == 0 {
		delete(e.pools, pool)
	}
}

func (e *Expectations) expired(at time.Time) bool { return e.clock.Since(at) > ttl }
