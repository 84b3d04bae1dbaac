// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/rollout"
)

// maxUnavailable is how many Pods of a pool may be missing because idle ones are replaced that are outdated, and because of
// those that are worn, which nobody has decided on. A text that says no limit is the default.
func maxUnavailable(pool *v1alpha1.SandboxPool) (stale, worn int) {
	limit, _ := rollout.Parse(pool.Annotations[v1alpha1.RolloutAnnotationKey])
	return limit.Of(pool.Spec.Replicas), rollout.Default.Of(pool.Spec.Replicas)
}

// replaceOutdated rolls over the idle Pods of an old template, and those that a kubelet would make the next caller wait for:
// as many at a time as may be unavailable, counting those that are so for any reason, and those that are yet to be made.
// Thus a template that does not work takes no more than that. Old Pods that are not ready come first and cost nothing, as nobody can have them anyway.
//
// Pods that are not idle are left alone: one that has ended its sandbox is replaced then, by decideStopping.
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
		limit, reason := forStale, reasonOutdated
		if !outdated(s, pod) {
			limit, reason = forWorn, reasonHeldBack
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
		d.add(action{Verb: verbDelete, Pod: pod, Reason: reason})
	}
}
