// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// statusChanges returns the merge patch of a pool's status: JSON field names with new values, null for removed fields. A count that fell to
// 0 is sent as 0: a struct would omit it, and the old count would remain.
func statusChanges(before, after *v1alpha1.SandboxPoolStatus) map[string]any {
	changes := map[string]any{}
	if before.Phase != after.Phase {
		changes["phase"] = nullable(string(after.Phase))
	}
	for _, count := range []struct {
		field         string
		before, after int32
	}{
		{"idleReplicas", before.IdleReplicas, after.IdleReplicas},
		{"unavailableIdleReplicas", before.UnavailableIdleReplicas, after.UnavailableIdleReplicas},
		{"runningReplicas", before.RunningReplicas, after.RunningReplicas},
		{"startingReplicas", before.StartingReplicas, after.StartingReplicas},
		{"stoppingReplicas", before.StoppingReplicas, after.StoppingReplicas},
		{"failedReplicas", before.FailedReplicas, after.FailedReplicas},
		{"pendingRequests", before.PendingRequests, after.PendingRequests},
	} {
		if count.before != count.after {
			changes[count.field] = count.after
		}
	}
	if before.Selector != after.Selector {
		changes["selector"] = nullable(after.Selector)
	}
	if !equality.Semantic.DeepEqual(before.LabelSelector, after.LabelSelector) {
		changes["labelSelector"] = selectorChanges(before.LabelSelector, after.LabelSelector)
	}
	if !equality.Semantic.DeepEqual(before.PhaseSelectors, after.PhaseSelectors) {
		changes["phaseSelectors"] = mapChanges(before.PhaseSelectors, after.PhaseSelectors)
	}
	if !equality.Semantic.DeepEqual(before.Conditions, after.Conditions) {
		changes["conditions"] = after.Conditions
	}
	if !equality.Semantic.DeepEqual(before.AutoScaling, after.AutoScaling) {
		changes["autoscaling"] = autoscalingChanges(before.AutoScaling, after.AutoScaling)
	}
	return changes
}

// nullable returns the merge patch value of a string field; null removes the field.
func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// mapChanges returns the merge patch from one map to another. A merge patch merges objects, so removed keys are set to null.
func mapChanges(before, after map[string]string) map[string]any {
	changes := map[string]any{}
	for key := range before {
		if _, kept := after[key]; !kept {
			changes[key] = nil
		}
	}
	for key, value := range after {
		if old, had := before[key]; !had || old != value {
			changes[key] = value
		}
	}
	return changes
}

func selectorChanges(before, after *metav1.LabelSelector) any {
	if after == nil {
		return nil
	}
	if before == nil {
		return after
	}
	return map[string]any{
		"matchLabels":      mapChanges(before.MatchLabels, after.MatchLabels),
		"matchExpressions": after.MatchExpressions,
	}
}

// autoscalingChanges contains every field, because a cleared idleZeroSince must be sent as null.
func autoscalingChanges(before, after *v1alpha1.PoolAutoScalingStatus) any {
	if after == nil {
		return nil
	}
	if before == nil {
		return after
	}
	return map[string]any{
		"lastScaleUpTime":          after.LastScaleUpTime,
		"lastScaleDownTime":        after.LastScaleDownTime,
		"idleZeroSince":            after.IdleZeroSince,
		"lastScaleUpAttemptTime":   after.LastScaleUpAttemptTime,
		"lastScaleUpAttemptResult": nullable(string(after.LastScaleUpAttemptResult)),
		"scaleUpErrorMessage":      nullable(after.ScaleUpErrorMessage),
		"observedGeneration":       after.ObservedGeneration,
	}
}
