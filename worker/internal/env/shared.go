// SPDX-License-Identifier: Apache-2.0

package env

import (
	"maps"

	"k8s.io/apimachinery/pkg/runtime"

	"navix.sh/atoll/api/v1alpha1"
)

// What pools without an Env, and the Envs that pools are adopted by, have in common with members. There is one definition
// of each, so that a pool that is adopted is not thought to have changed.

// TemplateFields are the fields of a pool's spec that a template gives.
func TemplateFields() []string { return append([]string(nil), templateFields...) }

// TemplateRevision is the revision of a SandboxTemplate, given its spec as a document.
func TemplateRevision(spec map[string]any) (string, error) {
	t, err := newTemplate("", nil, nil, spec)
	if err != nil {
		return "", err
	}
	return t.revision, nil
}

// Inheritable are the labels or annotations of a template that its pools get as well.
func Inheritable(keys map[string]string) map[string]string { return inheritable(maps.Clone(keys)) }

// Readable refuses the spec of a pool that informers cannot read.
func Readable(spec map[string]any) error { return readable(spec) }

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
