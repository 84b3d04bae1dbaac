// SPDX-License-Identifier: Apache-2.0

package env

import (
	"k8s.io/apimachinery/pkg/runtime"

	"navix.sh/atoll/api/v1alpha1"
)

// What pools without an Env, and the Envs that pools are adopted by, have in common with members. There is one definition
// of each, so that a pool that is adopted is not thought to have changed.

// Frozen are the documents of a member's metadata and spec that freeze a live pool as it is, given its spec as a document.
func Frozen(pool *v1alpha1.SandboxPool, spec map[string]any) (metadata, frozen map[string]any) {
	s := takenBack(pool, runtime.DeepCopyJSON(spec), pool.Spec.Replicas)
	return s.metadata(), s.spec
}

// keptByOther reports whether another controller keeps the Env, or a pool that it owns. Then nothing is written to either.
func (r *Reconciler) keptByOther(o *observation) bool {
	if r.paused == nil {
		return false
	}
	if r.paused(o.env) {
		return true
	}
	for _, pool := range o.pools {
		if owns(o.env, pool) && r.paused(pool) {
			return true
		}
	}
	return false
}

// beingAdopted reports an Env that was made for a pool which does not know of it yet.
func beingAdopted(o *observation, pool *v1alpha1.SandboxPool) bool {
	uid := o.env.Annotations[v1alpha1.AdoptedPoolAnnotationKey]
	return uid != "" && uid == string(pool.UID) && !v1alpha1.HasEnvOwner(pool)
}
