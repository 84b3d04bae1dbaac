// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/rollout"
)

// maxUnavailable returns how many Pods of a pool may be missing while outdated idle Pods are replaced, and how many while worn ones are. An
// invalid value means the default.
func maxUnavailable(pool *v1alpha1.SandboxPool) (stale, worn int) {
	limit, _ := rollout.Parse(pool.Annotations[v1alpha1.RolloutAnnotationKey])
	return limit.Of(pool.Spec.Replicas), rollout.Default.Of(pool.Spec.Replicas)
}

// replaceOutdated replaces the idle Pods of an old template, and those on a node that would delay the next caller. It replaces as many at a
// time as may be unavailable. Pods that are unavailable for any reason, and those yet to be created, count towards that limit. A broken
// template therefore costs no more than that many Pods. Old Pods that are not ready come first and do not count, because no caller can get
// them anyway.
//
// Pods that are not idle are left alone: decideStopping replaces them when their sandbox has ended.
func replaceOutdated(s *snapshot, idle []*corev1.Pod, missing int, d *decision) {
	forStale, forWorn := maxUnavailable(s.Pool)
	deleted := 0
	var old []*corev1.Pod
	for _, pod := range idle {
		if !ready(pod) {
			missing++
		}
		if outdated(s, pod) || worn(s, pod) {
			old = append(old, pod)
		}
	}
	slices.SortStableFunc(old, func(a, b *corev1.Pod) int { return leastMissed(s, a, b) })
	for _, pod := range old {
		limit, why := forStale, reasonOutdated
		if !outdated(s, pod) {
			limit, why = forWorn, reasonHeldBack
		}
		if ready(pod) {
			if missing >= limit {
				continue
			}
			missing++
		}
		if deleted++; deleted > maxScaleDown {
			return
		}
		d.add(action{Verb: verbDelete, Pod: pod, Reason: why})
	}
}
