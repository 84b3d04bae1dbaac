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
	// turnKept is how far ahead turns are reserved, and how long an unused turn stays valid: its member may be gone. An Env comes back at
	// least every longestBackoff.
	turnKept = 2 * longestBackoff
)

// creations assigns turns to pools that are to be created. A namespace reserves turns for turnKept at most (I10); further pools try again.
type creations struct {
	clock clock.PassiveClock

	mu         sync.Mutex
	namespaces map[string]*rate.Limiter
	turns      map[types.NamespacedName]time.Time // of waiting pools
	swept      time.Time
}

func newCreations(on clock.PassiveClock) *creations {
	return &creations{clock: on, namespaces: map[string]*rate.Limiter{}, turns: map[types.NamespacedName]time.Time{}, swept: on.Now()}
}

// wait returns how long a pool has to wait for its turn. It returns 0 if it is the pool's turn, and uses the turn up.
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

// sweep drops unused turns, and namespaces that have created no pools lately. The caller holds the lock.
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
