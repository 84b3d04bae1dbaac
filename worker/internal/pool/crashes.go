// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	crashBackoffMin = time.Second
	crashBackoffMax = 5 * time.Minute
	// crashesForgotten is how long a pool's idle Pods must survive before the back-off starts over.
	crashesForgotten = 10 * time.Minute
)

// crashes delays the replacement of Pods that end while idle. The first round is replaced immediately; the delay doubles with each further
// round.
type crashes struct{ *perPool[crashState] }

type crashState struct {
	delay time.Duration
	last  time.Time
}

func (c *crashes) remaining(pool types.NamespacedName) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	st, ok := c.pools[pool]
	if !ok {
		return 0
	}
	age := c.clock.Since(st.last)
	if age > crashesForgotten {
		delete(c.pools, pool)
		return 0
	}
	return max(0, st.delay-age)
}

// replaced records that a round of crashed Pods is being replaced.
func (c *crashes) replaced(pool types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delay := min(max(crashBackoffMin, 2*c.pools[pool].delay), crashBackoffMax)
	c.pools[pool] = crashState{delay: delay, last: c.clock.Now()}
}
