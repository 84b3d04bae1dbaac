// SPDX-License-Identifier: Apache-2.0

package env

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

// matches remembers at which generation of its Env each pool was last as its snapshot asks; because a difference that comes with
// a newer generation is the Env's change, and any other is the pool's. It has an entry for a live member (I10).
type matches struct {
	mu   sync.Mutex
	envs map[types.NamespacedName]matched
}

type matched struct {
	uid     types.UID
	members map[string]match
}

type match struct {
	pool       types.UID
	generation int64
}

func newMatches() *matches { return &matches{envs: map[types.NamespacedName]matched{}} }

// of returns the generations by member.
func (m *matches) of(env *v1alpha1.SandboxEnv) map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.envs[client.ObjectKeyFromObject(env)]
	if known.uid != env.UID {
		return nil
	}
	out := make(map[string]int64, len(known.members))
	for name, at := range known.members {
		out[name] = at.generation
	}
	return out
}

// keep updates the memory by a decision that was carried out; nil: the Env is gone.
func (m *matches) keep(name types.NamespacedName, o *observation, p *plan) {
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
	for i := range p.members {
		if member := &p.members[i]; member.matches {
			known.members[member.name] = match{o.pools[member.name].UID, o.Env.Generation}
		}
	}
}
