// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// cache is a pool as its worker sees it: late, and now and then not at all.
type cache struct {
	pool *pool
	pods map[string]seen
	// order keeps names as they came, so that a run does not depend on a map.
	order    []string
	replicas int32
	status   *v1alpha1.PoolAutoScalingStatus
	written  *v1alpha1.PoolAutoScalingStatus // what the API server has
	// unseen are writes of the worker's own that are not here yet. It decides nothing until they are.
	unseen   int
	latest   time.Duration // when the last change on its way arrives: changes do not overtake each other
	onChange func()
}

// seen is a Pod in a cache.
type seen struct {
	state  podState
	since  time.Duration
	marked bool
	mark   time.Duration
}

func newCache(p *pool) *cache {
	return &cache{pool: p, pods: map[string]seen{}, replicas: p.replicas, onChange: func() {}}
}

// arrive does something when a change that is made now is seen.
func (c *cache) arrive(do func()) {
	w := c.pool.world
	lag := w.plan.Model.CacheLag
	if d := w.active(SlowCache, c.pool.Cluster); d != nil {
		lag = lag.times(d.Factor)
	}
	c.latest = max(c.latest, w.now+lag.draw(w.caches))
	w.when(c.latest, func() {
		do()
		c.onChange()
	})
}

// podChanged sends a Pod on its way into the cache, and reports whether it will get there.
func (c *cache) podChanged(n *pod) bool {
	w := c.pool.world
	if d := w.active(LostUpdates, c.pool.Cluster); d != nil && w.faults.Float64() < d.Factor {
		return false
	}
	now, name := seen{n.state, n.since, n.marked, n.mark}, n.name
	gone := n.gone
	c.arrive(func() { c.put(name, now, gone) })
	return true
}

// expect has the worker wait for what was sent on its way just now.
func (c *cache) expect() {
	c.unseen++
	c.pool.world.when(c.latest, func() { c.unseen--; c.onChange() })
}

func (c *cache) put(name string, s seen, gone bool) {
	_, known := c.pods[name]
	switch {
	case gone && known:
		delete(c.pods, name)
		c.pool.reconcileSoon()
		for i, other := range c.order {
			if other == name {
				c.order = append(c.order[:i], c.order[i+1:]...)
				break
			}
		}
	case !gone:
		if !known {
			c.order = append(c.order, name)
		}
		c.pods[name] = s
	}
}

func (c *cache) envChanged() {
	replicas := c.pool.replicas
	c.arrive(func() { c.replicas = replicas })
}

// writeStatus is a write of the pool's status.autoscaling, whose times have whole seconds.
func (c *cache) writeStatus(s *v1alpha1.PoolAutoScalingStatus) {
	s = s.DeepCopy()
	if s != nil {
		for _, t := range []**metav1.Time{&s.LastScaleUpTime, &s.LastScaleDownTime, &s.IdleZeroSince, &s.LastScaleUpAttemptTime} {
			if *t != nil {
				(*t).Time = (*t).Truncate(time.Second)
			}
		}
	}
	c.written = s
	c.pool.out.StatusWrites++
	c.arrive(func() { c.status = s })
	c.expect()
}

// wake tells of what is known without a cache.
func (c *cache) wake() { c.onChange() }

// relist makes good what was lost.
func (c *cache) relist() { c.arrive(c.relistNow) }

func (c *cache) relistNow() {
	clear(c.pods)
	c.order = c.order[:0]
	for _, n := range c.pool.pods {
		c.put(n.name, seen{n.state, n.since, n.marked, n.mark}, false)
	}
	c.replicas, c.status = c.pool.replicas, c.written
	c.pool.reconcileSoon()
}
