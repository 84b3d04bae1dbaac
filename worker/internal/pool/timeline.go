// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// timeline records since when this process has seen each Pod in its current stage. It measures windows and timeouts on the monotonic clock,
// because the times on Pods come from a wall clock that may be wrong or stepped (I11). After a restart of the process a stage begins again:
// it ends late by one window at most, and never early.
type timeline struct{ *perPool[map[types.UID]stage] }

type stage struct {
	name  string
	since time.Time
	noted time.Time // when its status detail was last written
}

// noteEvery is the minimum time between two writes of one Pod's status detail. The kubelet's message about a failing container changes with
// each retry.
const noteEvery = 10 * time.Second

// wrote records that a Pod's status detail was written.
func (t *timeline) wrote(pool types.NamespacedName, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.pools[pool][uid]; ok {
		s.noted = t.clock.Now()
		t.pools[pool][uid] = s
	}
}

// noted returns how long the status details of Pods must not be written again.
func (t *timeline) noted(pool types.NamespacedName) map[types.UID]time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var wait map[types.UID]time.Duration
	for uid, s := range t.pools[pool] {
		if s.noted.IsZero() {
			continue
		}
		if left := noteEvery - t.clock.Since(s.noted); left > 0 {
			if wait == nil {
				wait = map[types.UID]time.Duration{}
			}
			wait[uid] = left
		}
	}
	return wait
}

// observe replaces the pool's stages with the given ones, and returns how long each Pod has been in its stage. It drops Pods that are not
// given, so memory is bounded by Pods (I10).
func (t *timeline) observe(pool types.NamespacedName, stages map[types.UID]string) map[types.UID]time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, before := t.clock.Now(), t.pools[pool]
	if len(stages) == 0 {
		delete(t.pools, pool)
		return nil
	}
	after := make(map[types.UID]stage, len(stages))
	ages := make(map[types.UID]time.Duration, len(stages))
	for uid, name := range stages {
		s, ok := before[uid]
		if !ok || s.name != name {
			s = stage{name: name, since: now}
		}
		after[uid] = s
		ages[uid] = now.Sub(s.since)
	}
	t.pools[pool] = after
	return ages
}
