// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// urgent are the clusters whose records other replicas wait for.
type urgent struct {
	wake chan struct{} // has a token when there are any

	mu       sync.Mutex // a leaf
	clusters map[*cluster]struct{}
}

// hurry has a cluster's record saved soon. It may be called with the cluster's mu held.
func (u *urgent) hurry(c *cluster) {
	u.mu.Lock()
	u.clusters[c] = struct{}{}
	u.mu.Unlock()
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

func (u *urgent) take() []*cluster {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := slices.Collect(maps.Keys(u.clusters))
	clear(u.clusters)
	return taken
}

// saveSoon saves what other replicas wait for, not more often than once in soonPause. The records of other clusters wait for saveInterval;
// because one cluster would have all of them written each second.
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
