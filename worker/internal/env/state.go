// SPDX-License-Identifier: Apache-2.0

package env

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// stateOf returns whether a member can serve, given its live pool.
func stateOf(o *observation, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) v1alpha1.ObservedMemberState {
	switch {
	case terminating(pool):
		return v1alpha1.ObservedMemberStateMissing
	case len(o.Mismatches(member, pool)) > 0:
		return v1alpha1.ObservedMemberStateInconsistent
	case saturated(o, member, pool):
		return v1alpha1.ObservedMemberStateSaturated
	default:
		return v1alpha1.ObservedMemberStateActive
	}
}

// saturated reports whether a member cannot grow: its last attempt was refused recently, or the member or the local part of its group is at
// its maximum. Other clusters' parts of the group do not count, because no decision reads their segments from an Env.
func saturated(o *observation, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) bool {
	if saturatedUntil(o, member, pool) != nil {
		return true
	}
	if ceiling := member.Config.MaxReplicas; ceiling != nil && pool.Spec.Replicas >= *ceiling {
		return true
	}
	group := o.Env.ScalingGroup(member.Config.ScalingGroup)
	if group == nil || group.MaxReplicas == nil {
		return false
	}
	var held int64
	for _, other := range o.members() {
		if live := o.ownedPool(other.Name); live != nil && other.Config.ScalingGroup == member.Config.ScalingGroup {
			held += int64(live.Spec.Replicas)
		}
	}
	return held >= int64(*group.MaxReplicas)
}

// saturatedUntil returns the end of the cooldown after the last attempt to grow the pool, if that was not fully admitted, else nil. It
// mirrors the autoscaler's status, for users and for the member's state. A member at its maximum is saturated without such a time.
func saturatedUntil(o *observation, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) *metav1.Time {
	found, group := pool.Status.AutoScaling, o.Env.ScalingGroup(member.Config.ScalingGroup)
	if found == nil || found.LastScaleUpAttemptTime == nil || group == nil || !group.Enabled {
		return nil
	}
	switch found.LastScaleUpAttemptResult {
	case "", v1alpha1.PoolScaleUpAttemptEnough:
		return nil
	}
	cooldown := time.Duration(group.ScaleUpPolicy.SaturationCooldownSeconds) * time.Second
	left := cooldown - o.since(found.LastScaleUpAttemptTime.Time)
	// Times are stored in whole seconds; a fraction would cause a write at each reconcile.
	until := metav1.NewTime(o.now.Add(left).Round(time.Second))
	if !until.After(o.now) {
		return nil
	}
	return &until
}
