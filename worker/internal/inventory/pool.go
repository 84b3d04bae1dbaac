// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/allowed"
	"navix.sh/atoll/worker/internal/sandbox"
)

// Pool is the part of a SandboxPool that claims need.
type Pool struct {
	key     types.NamespacedName
	object  *v1alpha1.SandboxPool // shared with the informer, must not be modified; nil if the pool does not exist
	closing bool                  // being deleted
	env     types.NamespacedName  // that the pool belongs to
	texts   allowed.Texts
	allowed allowed.Lists // that texts say
	pods    int
	idle    idleQueue
}

// Key returns the pool's name.
func (p *Pool) Key() types.NamespacedName { return p.key }

// Spec returns the pool's spec, or nil if the pool does not exist. It is shared and must not be modified.
func (p *Pool) Spec() *v1alpha1.SandboxPoolSpec {
	if p.object == nil {
		return nil
	}
	return &p.object.Spec
}

// Object returns the pool, or nil if it does not exist. It is shared and must not be modified.
func (p *Pool) Object() *v1alpha1.SandboxPool { return p.object }

// Closing reports whether the pool is being deleted, or is gone.
func (p *Pool) Closing() bool { return p.closing }

// Empty reports whether the pool has no Pods and wants none.
func (p *Pool) Empty() bool { return p.pods == 0 && p.object != nil && p.object.Spec.Replicas == 0 }

// Idle returns how many of its Pods can be claimed now.
func (p *Pool) Idle() int { return p.idle.len() }

// Runtimes returns the runtimes of the pool's sandboxes.
func (p *Pool) Runtimes() []v1alpha1.SandboxRuntimeSpec {
	if p.object == nil {
		return nil
	}
	return p.object.Spec.Runtimes
}

// Pool returns the pool of a name, or nil for an unknown one.
func (v *View) Pool(key types.NamespacedName) *Pool { return v.pools[key] }

// PoolNames lists the pools of a namespace, for an error message.
func (v *View) PoolNames(namespace string) string {
	var names []string
	for key, p := range v.pools {
		if key.Namespace == namespace && p.object != nil {
			names = append(names, key.Name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// SetPool adds or updates a pool.
func (s *State) SetPool(object *v1alpha1.SandboxPool) {
	p := s.poolAt(types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
	p.object, p.closing = object, object.DeletionTimestamp != nil
	p.env = types.NamespacedName{Namespace: object.Namespace, Name: sandbox.EnvOfPool(object)}
	if texts := allowed.TextsOf(object.Annotations); texts != p.texts {
		p.texts = texts
		p.allowed, _ = texts.Read() // a list with a fault allows nothing; conditions report it
	}
	s.Touch(p)
}

// SetEnv adds or updates what an Env allows.
func (s *State) SetEnv(object *v1alpha1.SandboxEnv) {
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	if lists, _ := allowed.TextsOf(object.Annotations).Read(); lists.Empty() {
		delete(s.envs, key)
	} else {
		s.envs[key] = lists
	}
}

// RemoveEnv removes an Env that no longer exists.
func (s *State) RemoveEnv(object *v1alpha1.SandboxEnv) {
	delete(s.envs, types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
}

// Allowed returns what callers may choose for the sandboxes of a pool: what the pool allows, which comes from its template, and what its
// Env allows now.
func (v *View) Allowed(p *Pool) allowed.Lists { return p.allowed.And(v.envs[p.env]) }

// RemovePool removes a pool that no longer exists.
func (s *State) RemovePool(object *v1alpha1.SandboxPool) {
	p := s.poolAt(types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
	p.object, p.closing = nil, true
	s.Touch(p)
	s.sweepPool(p)
}

// Touch marks a pool, so that its numbers are announced.
func (s *State) Touch(p *Pool) { s.touched[p] = struct{}{} }

func (s *State) poolAt(key types.NamespacedName) *Pool {
	p := s.pools[key]
	if p == nil {
		p = &Pool{key: key}
		s.pools[key] = p
	}
	return p
}

func (s *State) sweepPool(p *Pool) {
	if p.object == nil && p.pods == 0 {
		delete(s.pools, p.key)
	}
}
