// SPDX-License-Identifier: Apache-2.0

package env

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/pkg/scalepolicy"
)

const (
	// contestWindow is how long after a value that somebody else set it, or another one, counts as coming back.
	contestWindow = 5 * time.Minute
	// maxValues is how many different values in a row are written over. Two may be somebody who corrects a mistake.
	maxValues = 2
)

// Contests are the members whose replicas another writer keeps setting although they are the autoscaler's. It is undone
// once; a value that is set again within contestWindow is let stand, as is one more after maxValues different ones, such as
// another autoscaler's, and the member left alone, until the user changes what the Env says about autoscaling or about the
// member. It is remembered by this process only: the next one undoes one more value. It has an entry for a member while it is
// contested or was interfered with lately (I10).
//
// Replicas that a client-side apply of a whole manifest brings along do not count: it takes the snapshot away, too, which
// is taken back as a whole.
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
	generation int64     // of the Env that had it
	wish       string    // what the user wants of member and groups, but for replicas
	undone     bool      // it was written over since
	before     int       // how many other values were, each within contestWindow of the next
	contested  bool
}

// NewContests makes an empty memory.
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

// look takes in an observation, and answers the contested members.
func (c *Contests) look(o *observation) map[string]bool {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var out map[string]bool
	name, here := client.ObjectKeyFromObject(o.env), map[string]bool{}
	members := o.members()
	for i := range members {
		member := &members[i]
		key := contestKey{name, member.Name}
		here[member.Name] = true
		wish := wishOf(o.env, member)
		known := c.members[key]
		if known != nil && (known.env != o.env.UID || known.wish != wish || !known.contested && c.clock.Since(known.at) > contestWindow) {
			delete(c.members, key)
			known = nil
		}
		if pool := o.pools[member.Name]; pool != nil && hasSnapshot(member) && interfered(o, member, pool) {
			switch {
			case known == nil || !known.contested && known.value != member.Spec.Replicas:
				known = known.next(&contest{env: o.env.UID, value: member.Spec.Replicas, at: c.clock.Now(), generation: o.env.Generation, wish: wish})
				c.members[key] = known
			case !known.undone:
				known.generation = o.env.Generation // it was there all along, whatever else has changed
			case known.generation != o.env.Generation:
				known.contested = true
			}
		}
		if known != nil && known.contested {
			if out == nil {
				out = map[string]bool{}
			}
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

// next is the contest about another value.
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

// undone tells that what somebody else set was written over. As long as it was not, it is there still and has not come back.
func (c *Contests) undone(env types.NamespacedName, member string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.members[contestKey{env, member}]; known != nil {
		known.undone = true
	}
}

// forget drops what is known of an Env that is gone.
func (c *Contests) forget(env types.NamespacedName) {
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

// wishOf changes with what a user wants of a member and of autoscaling, and not with replicas.
func wishOf(env *v1alpha1.SandboxEnv, member *v1alpha1.EnvClusterMember) string {
	content, err := json.Marshal([]any{env.Spec.Autoscaling, member.Config})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(content)
	return string(sum[:])
}

// autoscalingActiveOf tells whether somebody scales, and if not why.
func autoscalingActiveOf(o *observation) patch.Condition {
	const active = v1alpha1.SandboxEnvConditionAutoscalingActive
	autoscaling := o.env.Spec.Autoscaling
	if autoscaling == nil || len(autoscaling.Groups) == 0 {
		return patch.False(active, v1alpha1.ReasonAutoscalingNotConfigured, "spec.autoscaling has no groups; replicas are set by hand")
	}
	var enabled, wrong, contested []string
	for i := range autoscaling.Groups {
		g := &autoscaling.Groups[i]
		if !g.Enabled {
			continue
		}
		enabled = append(enabled, g.Name)
		if fault := scalepolicy.Misconfigured(g); fault != "" {
			wrong = append(wrong, fault)
		}
	}
	for _, member := range o.members() {
		if o.contested[member.Name] {
			contested = append(contested, fmt.Sprintf("%s: %d", member.Name, member.Spec.Replicas))
		}
	}
	switch {
	case len(enabled) == 0:
		return patch.False(active, v1alpha1.ReasonAutoscalingDisabled, "no group is enabled; replicas are set by hand")
	case o.env.Spec.Mode == v1alpha1.SandboxEnvModeOnDemandJob:
		return patch.False(active, v1alpha1.ReasonModeNotSupported, "nothing is scaled in mode OnDemandJob")
	case !o.autoscaler:
		return patch.False(active, v1alpha1.ReasonAutoscalerNotRunning,
			fmt.Sprintf("this worker runs no autoscaler; replicas of groups %s stay as they are", strings.Join(enabled, ", ")))
	case len(wrong) > 0:
		return patch.False(active, v1alpha1.ReasonAutoscalingMisconfigured, strings.Join(wrong, "; "))
	case len(contested) > 0:
		return patch.False(active, v1alpha1.ReasonReplicasContested, fmt.Sprintf(
			"somebody else keeps setting replicas (%s), which stay as they are; take replicas out of what is applied, "+
				"or disable the group, and change the member's config or spec.autoscaling to have it scaled again", strings.Join(contested, ", ")))
	}
	return patch.True(active, v1alpha1.ReasonAutoscalerRunning, "groups "+strings.Join(enabled, ", "))
}
