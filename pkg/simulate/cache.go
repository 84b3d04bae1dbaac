// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"
)

// cache is the worker's view of a pool and of the pool's entry in the Env. It lags, and may miss updates.
type cache struct {
	pool *pool
	pods map[string]seen
	// order keeps names in the order of arrival, so that a run does not depend on a map.
	order    []string
	replicas int32 // of the Env
	applied  int32 // of the pool
	// behindEnv and behindPool count the worker's own writes that have not arrived yet. The worker does not decide before they have arrived.
	behindEnv, behindPool int
	latest                time.Duration // when the last change arrives; changes arrive in order
	onChange              func(in time.Duration)
}

// seen is a Pod in a cache.
type seen struct {
	state  podState
	since  time.Duration
	marked bool
	mark   time.Duration
	// noticed is when the mark arrived; its window starts then.
	noticed time.Duration
}

func newCache(p *pool) *cache {
	return &cache{pool: p, pods: map[string]seen{}, replicas: p.replicas, applied: p.applied, onChange: func(time.Duration) {}}
}

// arrive schedules do for the time at which a change made now becomes visible.
func (c *cache) arrive(do func()) {
	w := c.pool.world
	lag := w.plan.Model.CacheLag
	if d := w.active(SlowCache, c.pool.Cluster); d != nil {
		lag = lag.times(d.Factor)
	}
	c.latest = max(c.latest, w.now+lag.draw(w.caches))
	w.when(c.latest, func() {
		do()
		c.onChange(settle)
	})
}

// expect makes the worker wait until the write just sent is visible.
func (c *cache) expect(missing *int) {
	*missing++
	c.pool.world.when(c.latest, func() {
		*missing--
		c.onChange(settle)
	})
}

// podChanged sends a Pod's change to the cache, unless the update is lost.
func (c *cache) podChanged(n *pod) {
	w := c.pool.world
	if d := w.active(LostUpdates, c.pool.Cluster); d != nil && w.faults.Float64() < d.Factor {
		return
	}
	is, name, gone := n.seen(), n.name, n.gone
	c.arrive(func() {
		if gone {
			c.drop(name)
		} else {
			c.put(name, is)
		}
	})
}

func (n *pod) seen() seen {
	return seen{state: n.state, since: n.since, marked: n.marked, mark: n.mark}
}

func (c *cache) put(name string, is seen) {
	before, known := c.pods[name]
	if !known {
		c.order = append(c.order, name)
	}
	is.noticed = c.pool.world.now
	if before.marked && before.mark == is.mark {
		is.noticed = before.noticed
	}
	c.pods[name] = is
}

func (c *cache) drop(name string) {
	delete(c.pods, name)
	if i := slices.Index(c.order, name); i >= 0 {
		c.order = slices.Delete(c.order, i, i+1)
	}
	c.pool.reconcileSoon()
}

func (c *cache) envChanged() {
	replicas := c.pool.replicas
	c.arrive(func() { c.replicas = replicas })
}

func (c *cache) poolChanged() {
	applied := c.pool.applied
	c.arrive(func() { c.applied = applied })
}

// relist restores lost updates.
func (c *cache) relist() { c.arrive(c.relistNow) }

func (c *cache) relistNow() {
	before := c.pods
	c.pods, c.order = map[string]seen{}, nil
	for _, n := range c.pool.pods {
		c.put(n.name, n.seen())
		if was, is := before[n.name], c.pods[n.name]; was.marked && was.mark == is.mark {
			is.noticed = was.noticed
			c.pods[n.name] = is
		}
	}
	c.replicas, c.applied = c.pool.replicas, c.pool.applied
	c.pool.reconcileSoon()
}
