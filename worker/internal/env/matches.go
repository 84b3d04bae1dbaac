// SPDX-License-Identifier: Apache-2.0

package env

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

// matches remembers what the Env asked when each pool last matched its snapshot. If the Env asks something else now, a difference is the
// Env's change; otherwise it is the pool's. There is one entry per live member (I10).
type matches struct {
	mu   sync.Mutex
	envs map[types.NamespacedName]matched
}

type matched struct {
	uid     types.UID
	members map[string]match
}

type match struct {
	pool types.UID
	asked
}

// asked is what an Env asks of a pool: the generation of its spec, and a hash of the member's snapshot, which may be in its status.
type asked struct {
	generation int64
	snapshot   uint64
}

func askedOf(env *v1alpha1.SandboxEnv, member *v1alpha1.EnvClusterMember) asked {
	out := asked{generation: env.Generation}
	if content, err := json.Marshal([]any{member.Metadata, member.Spec}); err == nil {
		sum := fnv.New64a()
		_, _ = sum.Write(content) // never fails
		out.snapshot = sum.Sum64()
	}
	return out
}

func newMatches() *matches { return &matches{envs: map[types.NamespacedName]matched{}} }

// of returns what the Env asked of each member.
func (m *matches) of(env *v1alpha1.SandboxEnv) map[string]asked {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.envs[client.ObjectKeyFromObject(env)]
	if known.uid != env.UID {
		return nil
	}
	out := make(map[string]asked, len(known.members))
	for name, at := range known.members {
		out[name] = at.asked
	}
	return out
}

// update updates the matches after a plan was carried out. A nil observation means that the Env is gone.
func (m *matches) update(name types.NamespacedName, o *observation, p *plan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o == nil {
		delete(m.envs, name)
		return
	}
	known := m.envs[name]
	if known.uid != o.Env.UID {
		known = matched{uid: o.Env.UID, members: map[string]match{}}
		m.envs[name] = known
	}
	maps.DeleteFunc(known.members, func(member string, at match) bool {
		pool := o.ownedPool(member)
		return pool == nil || pool.UID != at.pool
	})
	for i, member := range o.members() {
		if p.members[i].matches {
			known.members[member.Name] = match{o.pools[member.Name].UID, askedOf(o.Env, member)}
		}
	}
}
