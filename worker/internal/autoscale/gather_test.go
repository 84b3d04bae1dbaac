// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/scalepolicy"
)

// A pool that was deleted by hand comes back with its member's replicas, and one that another controller keeps has its Pods all
// along: both count in the group's limits.
func TestMembersWhosePoolIsAwayCount(t *testing.T) {
	member := func(name, group string, replicas int32, snapshot bool) v1alpha1.EnvClusterMember {
		m := v1alpha1.EnvClusterMember{Name: name, Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: group}}
		m.Spec.Replicas = replicas
		if snapshot {
			m.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main"}}
		}
		return m
	}
	env := &v1alpha1.SandboxEnv{}
	env.Spec.Autoscaling = &v1alpha1.EnvAutoscalingSpec{Groups: []v1alpha1.EnvAutoscalingGroup{
		{Name: "default", Enabled: true}, {Name: "still", Enabled: false}, {Name: "fast", Enabled: true},
	}}
	env.Spec.Clusters = []v1alpha1.EnvClusterSpec{
		{ClusterID: "west", Members: []v1alpha1.EnvClusterMember{member("far", "default", 50, true)}},
		{ClusterID: "east", Members: []v1alpha1.EnvClusterMember{
			member("here", "default", 5, true), member("away", "default", 5, true), member("new", "default", 3, false),
			member("off", "still", 7, true), member("loner", "", 7, true), member("gone", "fast", 2, true),
		}},
	}
	here := &v1alpha1.SandboxPool{}
	groups, members := groupsOf(env, "east", map[string]*v1alpha1.SandboxPool{"here": here, "off": {}, "stranger": {}}, time.Unix(1, 0))
	if len(groups) != 2 || groups[0].Others != 5 || groups[1].Others != 2 {
		t.Errorf("want groups default with 5 and fast with 2 replicas of pools that are away, got %+v", groups)
	}
	if !slices.ContainsFunc(members, func(m grouped) bool { return m.Name == "here" && m.pool == here && m.group == groups[0] }) ||
		len(members) != 1 {
		t.Errorf("want the member here alone decided about, got %+v", members)
	}
}

// A sum that wraps around would be no limit at all.
func TestHugeReplicasOfPoolsThatAreAwayCount(t *testing.T) {
	env := &v1alpha1.SandboxEnv{}
	env.Spec.Autoscaling = &v1alpha1.EnvAutoscalingSpec{Groups: []v1alpha1.EnvAutoscalingGroup{{Name: "default", Enabled: true}}}
	away := v1alpha1.EnvClusterMember{Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: "default"}}
	away.Spec.Replicas, away.Spec.Template.Spec.Containers = math.MaxInt32, []corev1.Container{{Name: "main"}}
	env.Spec.Clusters = []v1alpha1.EnvClusterSpec{{ClusterID: "east", Members: []v1alpha1.EnvClusterMember{away, away, away}}}
	groups, _ := groupsOf(env, "east", nil, time.Unix(1, 0))
	if len(groups) != 1 || groups[0].Others != math.MaxInt32 {
		t.Errorf("got %+v, want %d replicas of pools that are away", groups, math.MaxInt32)
	}
}

// Refused Pods are not on their way: a sibling does not count on them, and the hub sends no claim to wait for them.
func TestMissingPodsThatAreRefusedAreStuck(t *testing.T) {
	m := scalepolicy.Member{Replicas: 5, Pods: scalepolicy.Counts{Running: 1, Idle: 1}, Provisioning: 1}
	refused := m
	refused.Refused = &scalepolicy.Refusal{}
	if countMissing(&m); m.Provisioning != 4 || m.Stuck != 0 {
		t.Errorf("not made yet: %d on their way, %d stuck", m.Provisioning, m.Stuck)
	}
	if countMissing(&refused); refused.Provisioning != 4 || refused.Stuck != 3 {
		t.Errorf("refused: %d on their way, %d stuck", refused.Provisioning, refused.Stuck)
	}
}
