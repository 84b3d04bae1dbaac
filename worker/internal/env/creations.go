// SPDX-License-Identifier: Apache-2.0

package env

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// How many pools are created in a namespace at once, and then each second (I14); because one Env makes as many as it has members, and each
// takes five writes until it is ready.
const (
	createdAtOnce    = 20
	createdPerSecond = 10
	// creationPause is how long an Env waits at least for its next pools, so that several are created together.
	creationPause = time.Second
	// turnKept is how far ahead turns are given, and how long one that was not used is valid; because its member may be gone. An Env comes
	// back at least every longestBackoff.
	turnKept = 2 * longestBackoff
)

// creations gives pools turns to be created. Each namespace has the turns of turnKept at most (I10); pools beyond ask again.
type creations struct {
	clock clock.PassiveClock

	mu         sync.Mutex
	namespaces map[string]*rate.Limiter
	turns      map[types.NamespacedName]time.Time // of pools that wait
	swept      time.Time
}

func newCreations(on clock.PassiveClock) *creations {
	return &creations{clock: on, namespaces: map[string]*rate.Limiter{}, turns: map[types.NamespacedName]time.Time{}, swept: on.Now()}
}

// wait returns how long a pool has to wait for its turn; 0: it is its turn, which is used up now.
func (c *creations) wait(pool types.NamespacedName) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	c.sweep(now)
	turn, waits := c.turns[pool]
	if !waits || now.Sub(turn) > turnKept {
		limiter := c.namespaces[pool.Namespace]
		if limiter == nil {
			limiter = rate.NewLimiter(createdPerSecond, createdAtOnce)
			c.namespaces[pool.Namespace] = limiter
		}
		reserved := limiter.ReserveN(now, 1)
		if reserved.DelayFrom(now) > turnKept {
			reserved.CancelAt(now)
			return turnKept
		}
		turn = now.Add(reserved.DelayFrom(now))
	}
	if left := turn.Sub(now); left > 0 {
		c.turns[pool] = turn
		return max(left, creationPause)
	}
	delete(c.turns, pool)
	return 0
}

// sweep forgets turns that were not used, and namespaces that have created nothing lately. The caller holds the lock.
func (c *creations) sweep(now time.Time) {
	if now.Sub(c.swept) < turnKept {
		return
	}
	c.swept = now
	for pool, turn := range c.turns {
		if now.Sub(turn) > turnKept {
			delete(c.turns, pool)
		}
	}
	for namespace, limiter := range c.namespaces {
		if limiter.TokensAt(now) >= createdAtOnce {
			delete(c.namespaces, namespace)
		}
	}
}
