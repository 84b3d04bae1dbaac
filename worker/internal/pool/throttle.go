// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// throttle keeps writes of the same thing apart.
type throttle struct {
	clock    clock.PassiveClock
	interval time.Duration

	mu   sync.Mutex
	last map[types.NamespacedName]time.Time
}

func newThrottle(clk clock.PassiveClock, interval time.Duration) *throttle {
	return &throttle{clock: clk, interval: interval, last: map[types.NamespacedName]time.Time{}}
}

// wait is how long the next write has to wait.
func (t *throttle) wait(key types.NamespacedName) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.last[key]
	if !ok {
		return 0
	}
	return max(0, t.interval-t.clock.Since(last))
}

func (t *throttle) wrote(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last[key] = t.clock.Now()
}

func (t *throttle) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, key)
}
