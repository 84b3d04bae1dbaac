// SPDX-License-Identifier: Apache-2.0

package env

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// The burst and the rate per second of pool creations in a namespace (I14). One Env creates a pool for each of its members, and each pool
// takes five writes until it is ready.
const (
	createdAtOnce    = 20
	createdPerSecond = 10
	// creationPause is an Env's minimum wait for its next pools, so that several are created together.
	creationPause = time.Second
	// reservationKept is how far ahead creations are reserved, and how long an unused reservation stays valid: its member may be gone. An
	// Env comes back at least every longestBackoff.
	reservationKept = 2 * longestBackoff
)

// creations reserves the creations of pools. A namespace reserves for reservationKept ahead at most (I10); further pools try again.
type creations struct {
	clock clock.PassiveClock

	mu           sync.Mutex
	namespaces   map[string]*rate.Limiter
	reservations map[types.NamespacedName]time.Time // of waiting pools
	swept        time.Time
}

func newCreations(on clock.PassiveClock) *creations {
	return &creations{
		clock: on, namespaces: map[string]*rate.Limiter{}, reservations: map[types.NamespacedName]time.Time{}, swept: on.Now(),
	}
}

// wait returns how long a pool has to wait until it may be created. It returns 0 if that is now, and uses the reservation up.
func (c *creations) wait(pool types.NamespacedName) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	c.sweep(now)
	due, waits := c.reservations[pool]
	if !waits || now.Sub(due) > reservationKept {
		limiter := c.namespaces[pool.Namespace]
		if limiter == nil {
			limiter = rate.NewLimiter(createdPerSecond, createdAtOnce)
			c.namespaces[pool.Namespace] = limiter
		}
		reserved := limiter.ReserveN(now, 1)
		if reserved.DelayFrom(now) > reservationKept {
			reserved.CancelAt(now)
			return reservationKept
		}
		due = now.Add(reserved.DelayFrom(now))
	}
	if left := due.Sub(now); left > 0 {
		c.reservations[pool] = due
		return max(left, creationPause)
	}
	delete(c.reservations, pool)
	return 0
}

// sweep drops unused reservations, and namespaces that have created no pools lately. The caller holds the lock.
func (c *creations) sweep(now time.Time) {
	if now.Sub(c.swept) < reservationKept {
		return
	}
	c.swept = now
	for pool, due := range c.reservations {
		if now.Sub(due) > reservationKept {
			delete(c.reservations, pool)
		}
	}
	for namespace, limiter := range c.namespaces {
		if limiter.TokensAt(now) >= createdAtOnce {
			delete(c.namespaces, namespace)
		}
	}
}
