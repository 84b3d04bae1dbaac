// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// urgent is the set of clusters whose records other replicas wait for.
type urgent struct {
	wake token // given when a cluster is added

	mu       sync.Mutex // a leaf
	clusters map[*cluster]struct{}
}

// hurry queues a cluster's record to be saved soon. Callers may hold the cluster's mu.
func (u *urgent) hurry(c *cluster) {
	u.mu.Lock()
	u.clusters[c] = struct{}{}
	u.mu.Unlock()
	u.wake.give()
}

func (u *urgent) take() []*cluster {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := slices.Collect(maps.Keys(u.clusters))
	clear(u.clusters)
	return taken
}

// saveSoon saves the records that other replicas wait for, at most once in soonPause. Records of other clusters wait for saveInterval;
// because otherwise one cluster would have all of them written each second.
func (f *Fleet) saveSoon(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.soon.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-f.clock.After(soonPause):
		}
		f.saveThose(ctx, f.soon.take())
	}
}
