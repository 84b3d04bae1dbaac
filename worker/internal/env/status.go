// SPDX-License-Identifier: Apache-2.0

package env

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/worker/internal/snapshot"
)

// report is the part of an Env's status that this package writes.
type report struct {
	segment                       v1alpha1.EnvClusterStatus
	groups                        []v1alpha1.EnvScalingGroupStatus
	members, desired, run, unused int32
	conditions                    []metav1.Condition
}

// compute returns the status that follows from an observation and its plan.
func compute(o *observation, p *plan, clk clock.PassiveClock) report {
	r := report{segment: v1alpha1.EnvClusterStatus{ClusterID: o.clusterID, IsLocal: true}}
	for i, member := range o.members() {
		r.segment.ObservedMembers = append(r.segment.ObservedMembers, observeMember(o, member, &p.members[i]))
	}
	r.total(o)
	r.conditions = conditionsOf(o, p, clk)
	return r
}

func observeMember(o *observation, member *v1alpha1.EnvClusterMember, p *memberPlan) v1alpha1.EnvObservedMember {
	observed := v1alpha1.EnvObservedMember{
		Name:            member.Name,
		InstanceType:    member.Config.InstanceType,
		Multiplier:      member.Config.Multiplier,
		State:           p.state,
		DesiredReplicas: member.Spec.Replicas,
	}
	pool := o.ownedPool(member.Name)
	if resources, known := o.ResourcesOf(member, pool); known && !snapshot.SameResources(resources, nil) {
		observed.EffectiveResources = resources.DeepCopy()
	}
	if p.verb == verbAdmit || p.verb == verbTakeBack {
		observed.DesiredReplicas = p.replicas
	}
	// A pool of that name with another owner is not this member's.
	if pool == nil {
		return observed
	}
	observed.IdleCount = pool.Status.IdleReplicas
	observed.RunningCount = pool.Status.RunningReplicas
	observed.CurrentReplicas = pool.Spec.Replicas
	observed.PendingRequests = pool.Status.PendingRequests
	observed.SaturatedUntil = saturatedUntil(o, member, pool)
	return observed
}

// total sums up all segments: the local one as just computed, and the others as the sync path wrote them, with their owners' groups. Where
// an earlier release wrote no group, the group comes from this Env's spec. If this Env does not name a member's group at all, the member
// counts in the Env's sums and in no group's, because other clusters must not make the list long (I14).
func (r *report) total(o *observation) {
	groups, known := map[string]*v1alpha1.EnvScalingGroupStatus{}, groupsOf(o.Env)
	group := func(name string) *v1alpha1.EnvScalingGroupStatus {
		if groups[name] == nil {
			groups[name] = &v1alpha1.EnvScalingGroupStatus{Name: name}
		}
		return groups[name]
	}
	if autoscaling := o.Env.Spec.Autoscaling; autoscaling != nil {
		for i := range autoscaling.Groups {
			group(autoscaling.Groups[i].Name)
		}
	}
	add := func(part *v1alpha1.EnvClusterStatus) {
		names := groupNames(o.Env, part.ClusterID)
		for i := range part.ObservedMembers {
			member := &part.ObservedMembers[i]
			r.members++
			r.desired = segment.Sum(r.desired, member.DesiredReplicas)
			r.run = segment.Sum(r.run, member.RunningCount)
			r.unused = segment.Sum(r.unused, member.IdleCount)
			if name := cmp.Or(member.ScalingGroup, names[member.Name]); known[name] {
				g := group(name)
				g.TotalDesired = segment.Sum(g.TotalDesired, member.DesiredReplicas)
				g.TotalRunning = segment.Sum(g.TotalRunning, member.RunningCount)
				g.TotalIdle = segment.Sum(g.TotalIdle, member.IdleCount)
			}
		}
	}
	add(&r.segment)
	for i := range o.Env.Status.Clusters {
		if part := &o.Env.Status.Clusters[i]; part.ClusterID != o.clusterID {
			add(part)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		r.groups = append(r.groups, *groups[name])
	}
}

// groupsOf returns the set of scaling groups that an Env names.
func groupsOf(env *v1alpha1.SandboxEnv) map[string]bool {
	named := map[string]bool{}
	if env.Spec.Autoscaling != nil {
		for i := range env.Spec.Autoscaling.Groups {
			named[env.Spec.Autoscaling.Groups[i].Name] = true
		}
	}
	for i := range env.Spec.Clusters {
		for j := range env.Spec.Clusters[i].Members {
			if name := env.Spec.Clusters[i].Members[j].Config.ScalingGroup; name != "" {
				named[name] = true
			}
		}
	}
	return named
}

// groupNames maps the members of a cluster's spec segment to their scaling groups.
func groupNames(env *v1alpha1.SandboxEnv, clusterID string) map[string]string {
	names := map[string]string{}
	for _, member := range env.MembersOf(clusterID) {
		names[member.Name] = member.Config.ScalingGroup
	}
	return names
}

// written reports whether the status already contains the report. It ignores the order of lists, which the API server chooses, and
// lastSnapshotTime.
func (r *report) written(status *v1alpha1.SandboxEnvStatus) bool {
	if status.MemberCount != r.members || status.DesiredReplicas != r.desired ||
		status.RunningReplicas != r.run || status.IdleReplicas != r.unused {
		return false
	}
	segments := byKey(status.Clusters, func(s v1alpha1.EnvClusterStatus) string { return s.ClusterID })
	part, ok := segments[r.segment.ClusterID]
	if !ok || !part.IsLocal || part.LastSnapshotTime == nil {
		return false
	}
	memberName := func(m v1alpha1.EnvObservedMember) string { return m.Name }
	groupName := func(g v1alpha1.EnvScalingGroupStatus) string { return g.Name }
	if !equality.Semantic.DeepEqual(byKey(part.ObservedMembers, memberName), byKey(r.segment.ObservedMembers, memberName)) ||
		!equality.Semantic.DeepEqual(byKey(status.ScalingGroups, groupName), byKey(r.groups, groupName)) {
		return false
	}
	conditions := byKey(status.Conditions, func(c metav1.Condition) string { return c.Type })
	for _, condition := range r.conditions {
		if conditions[condition.Type] != condition {
			return false
		}
	}
	return true
}

func byKey[T any](list []T, key func(T) string) map[string]T {
	m := make(map[string]T, len(list))
	for _, item := range list {
		m[key(item)] = item
	}
	return m
}

// document returns the body of the status write. It contains zero counts, because an apply removes what it leaves out, and a printed column
// would be empty.
func (r *report) document(env *v1alpha1.SandboxEnv, now time.Time) (map[string]any, error) {
	members := make([]any, 0, len(r.segment.ObservedMembers))
	for i := range r.segment.ObservedMembers {
		member := &r.segment.ObservedMembers[i]
		doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(member)
		if err != nil {
			return nil, err
		}
		for field, count := range map[string]int32{
			"idleCount": member.IdleCount, "runningCount": member.RunningCount, "desiredReplicas": member.DesiredReplicas,
			"currentReplicas": member.CurrentReplicas, "pendingRequests": member.PendingRequests,
		} {
			doc[field] = int64(count)
		}
		members = append(members, doc)
	}
	groups := make([]any, 0, len(r.groups))
	for _, g := range r.groups {
		groups = append(groups, map[string]any{
			"name": g.Name, "totalIdle": int64(g.TotalIdle), "totalRunning": int64(g.TotalRunning), "totalDesired": int64(g.TotalDesired),
		})
	}
	conditions := make([]any, 0, len(r.conditions))
	for i := range r.conditions {
		doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&r.conditions[i])
		if err != nil {
			return nil, err
		}
		conditions = append(conditions, doc)
	}
	return map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       v1alpha1.SandboxEnvOwnerKind,
		// With the uid, applying to a deleted Env is a conflict. Without it, the apply would create the Env again.
		"metadata": map[string]any{"name": env.Name, "namespace": env.Namespace, "uid": string(env.UID)},
		"status": map[string]any{
			"clusters": []any{map[string]any{
				"clusterID": r.segment.ClusterID, "isLocal": true, "observedMembers": members,
				"lastSnapshotTime": now.UTC().Format(time.RFC3339),
			}},
			"scalingGroups":   groups,
			"memberCount":     int64(r.members),
			"desiredReplicas": int64(r.desired),
			"runningReplicas": int64(r.run),
			"idleReplicas":    int64(r.unused),
			"conditions":      conditions,
		},
	}, nil
}
