// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
)

// Pool is the part of a SandboxPool that claims need.
type Pool struct {
	key     types.NamespacedName
	spec    *v1alpha1.SandboxPoolSpec // the informer's: do not change it; nil when the pool does not exist
	closing bool                      // being deleted
	pods    int
	idle    idleQueue
}

// Key returns the pool's name.
func (p *Pool) Key() types.NamespacedName { return p.key }

// Spec is shared: do not change it. It is nil when the pool does not exist.
func (p *Pool) Spec() *v1alpha1.SandboxPoolSpec { return p.spec }

// Closing reports whether the pool is being deleted, or is gone.
func (p *Pool) Closing() bool { return p.closing }

// Empty reports whether the pool has no Pods and wants none.
func (p *Pool) Empty() bool { return p.pods == 0 && p.spec != nil && p.spec.Replicas == 0 }

// Idle returns how many of its Pods can be handed out now.
func (p *Pool) Idle() int { return p.idle.len() }

// Runtimes returns the runtimes of the pool's sandboxes.
func (p *Pool) Runtimes() []v1alpha1.SandboxRuntimeSpec {
	if p.spec == nil {
		return nil
	}
	return p.spec.Runtimes
}

// Pool returns the pool of a name; nil for an unknown one.
func (v *View) Pool(key types.NamespacedName) *Pool { return v.pools[key] }

// PoolNames lists the pools of a namespace, for an error message.
func (v *View) PoolNames(namespace string) string {
	var names []string
	for key, p := range v.pools {
		if key.Namespace == namespace && p.spec != nil {
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
	p.spec, p.closing = &object.Spec, object.DeletionTimestamp != nil
	s.Touch(p)
}

// RemovePool removes a pool that no longer exists.
func (s *State) RemovePool(object *v1alpha1.SandboxPool) {
	p := s.poolAt(types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
	p.spec, p.closing = nil, true
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
	if p.spec == nil && p.pods == 0 {
		delete(s.pools, p.key)
	}
}
