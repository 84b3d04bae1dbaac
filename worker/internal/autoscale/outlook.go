// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// outlooks holds the Outlook of each pool.
type outlooks struct {
	clock clock.PassiveClock

	mu        sync.Mutex
	pools     map[types.NamespacedName]outlook
	listeners []func(types.NamespacedName)
}

type outlook struct {
	canGrow   bool
	saturated time.Time // end of the saturation, on the monotonic clock
}

func newOutlooks(clk clock.PassiveClock) *outlooks {
	return &outlooks{clock: clk, pools: map[types.NamespacedName]outlook{}}
}

func (o *outlooks) onChange(f func(types.NamespacedName)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listeners = append(o.listeners, f)
}

func (o *outlooks) get(pool types.NamespacedName) (canGrow bool, saturated time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.pools[pool]
	if known.saturated.IsZero() {
		return known.canGrow, 0
	}
	return known.canGrow, max(0, known.saturated.Sub(o.clock.Now()))
}

// set stores an outlook, and notifies listeners if it changed. The passing of a saturation's time is not a change.
func (o *outlooks) set(pool types.NamespacedName, canGrow bool, saturated time.Duration) {
	next := outlook{canGrow: canGrow}
	if saturated > 0 {
		next.saturated = o.clock.Now().Add(saturated)
	}
	o.mu.Lock()
	before := o.pools[pool]
	o.pools[pool] = next
	listeners := o.listeners
	o.mu.Unlock()
	if before.canGrow != next.canGrow || before.saturated.IsZero() != next.saturated.IsZero() {
		for _, f := range listeners {
			f(pool)
		}
	}
}

func (o *outlooks) forget(pool types.NamespacedName) {
	o.mu.Lock()
	_, known := o.pools[pool]
	delete(o.pools, pool)
	listeners := o.listeners
	o.mu.Unlock()
	if known {
		for _, f := range listeners {
			f(pool)
		}
	}
}
