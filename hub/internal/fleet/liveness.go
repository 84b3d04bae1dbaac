// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"sync"
	"time"

	"navix.sh/atoll/pkg/router"
)

// liveness holds the inputs of decideHealth. Its lock is only held for short times.
type liveness struct {
	mu               sync.Mutex
	seen             bool
	lastSeen         time.Duration
	goodSince        time.Duration
	attached         bool
	noReceipt        bool
	noReceiptAt      time.Duration
	quarantinedUntil time.Duration
	was              router.Health
	marked           bool
	staleSent        bool // the staleness that was last sent to the other clusters
}

// touch records a frame of the attached stream.
func (c *cluster) touch(now time.Duration) {
	l := &c.liveness
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.seen || now-l.lastSeen >= lastChoiceAfter {
		l.goodSince = now
	}
	l.seen, l.lastSeen = true, now
	c.SetSeen(now)
}

// clear resets the state, as if the cluster had never sent a frame.
func (l *liveness) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.attached, l.noReceipt, l.marked, l.staleSent = false, false, false, false, false
	l.quarantinedUntil, l.was = 0, router.Unreachable
}

func (c *cluster) setAttached(attached bool) {
	c.liveness.mu.Lock()
	defer c.liveness.mu.Unlock()
	c.liveness.attached = attached
}

func (c *cluster) setReceipt(got bool, now time.Duration) {
	c.liveness.mu.Lock()
	defer c.liveness.mu.Unlock()
	c.liveness.noReceipt, c.liveness.noReceiptAt = !got, now
}

// misses reports whether a missing receipt counts, as in decideHealth. One that no longer counts stays recorded, and must not hide the next
// one from peers.
func (c *cluster) misses(now time.Duration) bool {
	c.liveness.mu.Lock()
	defer c.liveness.mu.Unlock()
	return c.liveness.noReceipt && now-c.liveness.noReceiptAt < recoverAfter
}

func (c *cluster) quarantineUntil(at time.Duration) {
	c.liveness.mu.Lock()
	defer c.liveness.mu.Unlock()
	c.liveness.quarantinedUntil = at
}

// alive reports whether a stream is attached and not silent.
func (c *cluster) alive(now time.Duration) bool {
	c.liveness.mu.Lock()
	defer c.liveness.mu.Unlock()
	return c.liveness.attached && now-c.liveness.lastSeen < lastChoiceAfter
}

func (c *cluster) isQuarantined(now time.Duration) bool {
	c.liveness.mu.Lock()
	defer c.liveness.mu.Unlock()
	return now < c.liveness.quarantinedUntil
}

// evaluate updates the cluster's health. It notifies the other clusters when its segments become stale or fresh.
func (c *cluster) evaluate() {
	now := c.fleet.now()
	l := &c.liveness
	l.mu.Lock()
	health := decideHealth(healthFacts{
		now: now, quarantined: now < l.quarantinedUntil, seen: l.seen, lastSeen: l.lastSeen, goodSince: l.goodSince,
		attached: l.attached, noReceipt: l.noReceipt, noReceiptAt: l.noReceiptAt, marked: l.marked,
	})
	was := l.was
	l.was = health
	l.marked = l.seen && health == router.Unreachable
	// Until this process has received a frame of the cluster, the others have no segments of it that could become stale.
	notify := l.seen && l.staleSent == health.Eligible()
	c.SetHealth(decideRouted(health, c.draining.Load()))
	l.mu.Unlock()
	if health != was {
		c.fleet.log.Info("Cluster changed health", "cluster", c.ID, "from", was.String(), "to", health.String())
	}
	if notify {
		c.notifyStale(!health.Eligible())
	}
}

// notifyStale notifies the other clusters of the cluster's staleness. It does nothing while a report of the cluster is being applied, so
// that a long report never delays another cluster's liveness. The next evaluation retries it.
func (c *cluster) notifyStale(stale bool) {
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	w := woken{}
	defer w.up()
	for _, p := range c.holdings.parts {
		p.slot.changed(c, w)
	}
	c.liveness.mu.Lock()
	defer c.liveness.mu.Unlock()
	c.liveness.staleSent = stale
}
