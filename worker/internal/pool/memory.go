// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"navix.sh/atoll/worker/internal/pool/expectations"
)

// memory is all that this process remembers of pools between reconciles. It is bounded by pools, Pods and nodes (I10).
type memory struct {
	expectations *expectations.Expectations
	timeline     *timeline
	crashes      *crashes
	backoffs     *backoffs
	failures     *failures
	replacements *replacements
	statuses     *throttle
	pendings     *throttle
}

func newMemory(clk clock.PassiveClock) memory {
	return memory{
		expectations: expectations.New(clk),
		timeline:     &timeline{newPerPool[map[types.UID]stage](clk)},
		crashes:      &crashes{newPerPool[crashState](clk)},
		backoffs:     newBackoffs(clk),
		failures:     &failures{newPerPool[failing](clk)},
		replacements: &replacements{newPerPool[*replaced](clk)},
		statuses:     &throttle{newPerPool[time.Time](clk), statusInterval},
		pendings:     &throttle{newPerPool[time.Time](clk), pendingInterval},
	}
}

// forget drops all entries of a deleted pool.
func (m *memory) forget(pool types.NamespacedName) {
	m.expectations.Forget(pool)
	m.timeline.forget(pool)
	m.crashes.forget(pool)
	m.failures.forget(pool)
	m.replacements.forget(pool)
	m.statuses.forget(pool)
	m.pendings.forget(pool)
}

// perPool holds one value for each pool.
type perPool[T any] struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	pools map[types.NamespacedName]T
}

func newPerPool[T any](clk clock.PassiveClock) *perPool[T] {
	return &perPool[T]{clock: clk, pools: map[types.NamespacedName]T{}}
}

func (p *perPool[T]) forget(pool types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pools, pool)
}

// throttle spaces writes of the same object.
type throttle struct {
	*perPool[time.Time]
	interval time.Duration
}

// wait returns how long the next write has to wait.
func (t *throttle) wait(key types.NamespacedName) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.pools[key]
	if !ok {
		return 0
	}
	return max(0, t.interval-t.clock.Since(last))
}

func (t *throttle) wrote(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pools[key] = t.clock.Now()
}
