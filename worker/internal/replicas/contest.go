// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/snapshot"
)

const (
	// contestWindow is how long after another writer's value a further one counts as recurring.
	contestWindow = 5 * time.Minute
	// maxValues is how many different values in a row are undone. Two may come from a user who corrects a mistake.
	maxValues = 2
)

// Contests holds the members whose replicas another writer keeps setting although the autoscaler sets them. A value is undone once. It
// stays if it is set again within contestWindow. A further value after maxValues different ones, such as another autoscaler's, stays as
// well. The member is then left alone until the user changes the Env's autoscaling or the member's config. Contests are not persisted: the
// next process undoes one more value. A member has an entry while it is contested or another writer has recently set its replicas (I10).
//
// Replicas in a client-side apply of a whole manifest do not count, because that replaces the list of members whole. Where a member states
// its snapshot, such an apply removes the snapshot as well, which is then taken back whole.
type Contests struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	members map[contestKey]*contest
}

type contestKey struct {
	env    types.NamespacedName
	member string
}

type contest struct {
	env        types.UID
	value      int32
	at         time.Time // on the monotonic clock
	generation int64     // of the Env with the value
	wish       string    // the user's settings for member and groups, without replicas
	undone     bool      // the value was undone since
	before     int       // how many other values preceded it, each within contestWindow of the next
	contested  bool
}

// NewContests returns an empty Contests.
func NewContests(clk clock.PassiveClock) *Contests {
	return &Contests{clock: clk, members: map[contestKey]*contest{}}
}

// Contested reports whether a member is left alone.
func (c *Contests) Contested(env types.NamespacedName, member string) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.members[contestKey{env, member}]
	return known != nil && known.contested
}

// Update updates the contests from an Env and its pools, by name, and returns the contested members of a cluster.
func (c *Contests) Update(env *v1alpha1.SandboxEnv, clusterID string, pools map[string]*v1alpha1.SandboxPool) map[string]bool {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]bool{}
	name, here := client.ObjectKeyFromObject(env), map[string]bool{}
	for _, member := range env.MembersOf(clusterID) {
		key := contestKey{name, member.Name}
		here[member.Name] = true
		wish := wishOf(env, member)
		known := c.members[key]
		if known != nil && (known.env != env.UID || known.wish != wish || !known.contested && c.clock.Since(known.at) > contestWindow) {
			delete(c.members, key)
			known = nil
		}
		if pool := pools[member.Name]; pool != nil && snapshot.Has(member) && Interfered(env, clusterID, member, pool) &&
			!applied(env, clusterID, member) {
			switch {
			case known == nil || !known.contested && known.value != member.Spec.Replicas:
				known = known.next(&contest{env: env.UID, value: member.Spec.Replicas, at: c.clock.Now(), generation: env.Generation, wish: wish})
				c.members[key] = known
			case !known.undone:
				known.generation = env.Generation // the value was unchanged, whatever else has changed
			case known.generation != env.Generation:
				known.contested = true
			}
		}
		if known != nil && known.contested {
			out[member.Name] = true
		}
	}
	for key := range c.members {
		if key.env == name && !here[key.member] {
			delete(c.members, key)
		}
	}
	return out
}

// next returns the contest that follows c, about another value.
func (c *contest) next(next *contest) *contest {
	if c != nil {
		next.before = c.before
		if c.undone {
			next.before++
		}
		next.contested = next.before >= maxValues
	}
	return next
}

// Undone records that another writer's value was undone. Until then the value is still present and cannot come back.
func (c *Contests) Undone(env types.NamespacedName, member string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.members[contestKey{env, member}]; known != nil {
		known.undone = true
	}
}

// Forget drops all entries of a deleted Env.
func (c *Contests) Forget(env types.NamespacedName) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.members {
		if key.env == env {
			delete(c.members, key)
		}
	}
}

// wishOf returns a text that changes with the user's settings for a member and for autoscaling, but not with replicas.
func wishOf(env *v1alpha1.SandboxEnv, member *v1alpha1.EnvClusterMember) string {
	content, err := json.Marshal([]any{env.Spec.Autoscaling, member.Config})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(content)
	return string(sum[:])
}
