// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"navix.sh/atoll/worker/internal/pool/expectations"
)

// memory is this process's state about pools between reconciles. It is bounded by pools, Pods and nodes (I10).
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
		statuses:     &throttle{newPerPool[spacing](clk), statusInterval, rate.NewLimiter(statusRate, statusRate)},
		pendings:     &throttle{newPerPool[spacing](clk), pendingInterval, nil},
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

// throttle limits the rate of writes per object, and of writes to all objects together.
type throttle struct {
	*perPool[spacing]
	interval time.Duration
	together *rate.Limiter // for waitSlot
}

// spacing is the time of an object's last write, and the slot of its next one among all objects; the slot is zero without a reservation.
type spacing struct{ last, slot time.Time }

// wait returns how long the next write of an object must still wait because of its last one.
func (t *throttle) wait(key types.NamespacedName) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, t.interval-t.clock.Since(t.pools[key].last))
}

// waitSlot is like wait, but also waits for a slot among all objects.
func (t *throttle) waitSlot(key types.NamespacedName) time.Duration {
	if own := t.wait(key); own > 0 {
		return own
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now, s := t.clock.Now(), t.pools[key]
	if s.slot.IsZero() {
		s.slot = now.Add(t.together.ReserveN(now, 1).DelayFrom(now))
		t.pools[key] = s
	}
	return max(0, s.slot.Sub(now))
}

func (t *throttle) wrote(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pools[key] = spacing{last: t.clock.Now()}
}
