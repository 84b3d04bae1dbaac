// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/controllers"
)

// TestContests plays another writer that sets replicas by hand, step by step.
func TestContests(t *testing.T) {
	type step struct {
		lags   bool // the Env is seen as in the step before
		after  time.Duration
		value  int32
		other  bool // another writer set it
		whole  bool // with the rest of the spec, as an apply does
		undone bool // and it was undone then
		change func(*v1alpha1.SandboxEnv)
		uid    types.UID
		want   bool
	}
	higher := func(e *v1alpha1.SandboxEnv) {
		four := int32(4)
		e.Spec.Clusters[0].Members[0].Config.MinReplicas = &four
	}
	off := func(e *v1alpha1.SandboxEnv) { e.Spec.Autoscaling.Groups[0].Enabled = false }
	for name, steps := range map[string][]step{
		"once":            {{value: 3, other: true, undone: true}, {value: 5}},
		"comes back":      {{value: 3, other: true, undone: true}, {value: 5}, {value: 3, other: true, want: true}},
		"comes back late": {{value: 3, other: true, undone: true}, {value: 5}, {after: 6 * time.Minute, value: 3, other: true}},
		"another value":   {{value: 3, other: true, undone: true}, {value: 5}, {value: 4, other: true}},
		"a third value": {{value: 3, other: true, undone: true}, {value: 5}, {value: 4, other: true, undone: true}, {value: 5},
			{value: 6, other: true, want: true}, {value: 7, other: true, want: true}},
		"a third value late": {{value: 3, other: true, undone: true}, {value: 5}, {value: 4, other: true, undone: true},
			{after: 6 * time.Minute, value: 6, other: true}},
		"a third value, and none was undone": {{value: 3, other: true}, {value: 4, other: true}, {value: 6, other: true}},
		"a third value until autoscaling changes": {
			{value: 3, other: true, undone: true}, {value: 4, other: true, undone: true}, {value: 6, other: true, want: true},
			{value: 6, change: off},
		},
		"stays so": {{value: 3, other: true, undone: true}, {value: 3, other: true, want: true},
			{after: time.Hour, value: 3, want: true}},
		"was never undone": {{value: 3, other: true}, {value: 3, other: true}, {value: 3, other: true, undone: true},
			{value: 3, other: true, want: true}},
		"undone late, and seen once more": {
			{value: 3, other: true}, {value: 3, other: true, undone: true}, {value: 3, other: true, lags: true}, {value: 5},
		},
		"until the member changes":  {{value: 3, other: true, undone: true}, {value: 3, other: true, want: true}, {value: 3, change: higher}},
		"until autoscaling changes": {{value: 3, other: true, undone: true}, {value: 3, other: true, want: true}, {value: 3, change: off}},
		"not in an Env made anew":   {{value: 3, other: true, undone: true}, {value: 3, other: true, want: true}, {value: 3, uid: "new"}},
		"a manifest is applied again and again": {
			{value: 3, whole: true, undone: true}, {value: 5}, {value: 3, whole: true, undone: true}, {value: 5},
			{value: 3, whole: true, undone: true}, {value: 4, whole: true}, {value: 6, whole: true},
		},
		"our own writes do not count": {{value: 3}, {value: 3}, {value: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
			contests, generation := NewContests(clk), int64(0)
			for i, s := range steps {
				clk.SetTime(clk.Now().Add(s.after))
				if !s.lags {
					generation++
				}
				e, pools := scaled(generation, s.value, s.other || s.whole)
				if s.whole {
					e.ManagedFields[0].Operation = metav1.ManagedFieldsOperationUpdate
					e.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(
						strings.Replace(e.ManagedFields[0].FieldsV1.GetRawString(), `{"f:spec":{`, `{"f:spec":{"f:templateRef":{"f:name":{}},`, 1))
				}
				if s.change != nil {
					s.change(e)
				}
				if s.uid != "" {
					e.UID = s.uid
					pools["a"].OwnerReferences[0].UID = s.uid
				}
				for range 2 { // a generation that is seen twice counts once
					if got := contests.Update(e, "east", pools)["a"]; got != s.want {
						t.Fatalf("step %d: contested is %v", i, got)
					}
				}
				if got := contests.Contested(types.NamespacedName{Namespace: "ns", Name: "e"}, "a"); got != s.want {
					t.Fatalf("step %d: the autoscaler hears %v", i, got)
				}
				if s.undone {
					contests.Undone(types.NamespacedName{Namespace: "ns", Name: "e"}, "a")
				}
			}
			contests.Forget(types.NamespacedName{Namespace: "ns", Name: "e"})
			if len(contests.members) > 0 {
				t.Error("something is left of an Env that is gone")
			}
		})
	}
}

// scaled is an Env of one autoscaled member, whose pool has 5 replicas that we set.
func scaled(generation int64, replicas int32, other bool) (*v1alpha1.SandboxEnv, map[string]*v1alpha1.SandboxPool) {
	fields := func(manager string, path string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(path)}
	}
	member := v1alpha1.EnvClusterMember{Name: "a", Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: "default"}}
	member.Spec.Replicas = replicas
	member.Spec.Template.Spec.Containers = append(member.Spec.Template.Spec.Containers, corev1.Container{Name: "main"})
	e := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e", UID: "env", Generation: generation}}
	e.Spec.Clusters = []v1alpha1.EnvClusterSpec{{ClusterID: "east", Members: []v1alpha1.EnvClusterMember{member}}}
	e.Spec.Autoscaling = &v1alpha1.EnvAutoscalingSpec{Groups: []v1alpha1.EnvAutoscalingGroup{{Name: "default", Enabled: true}}}
	if other {
		e.ManagedFields = append(e.ManagedFields, fields("kubectl-edit",
			`{"f:spec":{"f:clusters":{"k:{\"clusterID\":\"east\"}":{"f:members":{"k:{\"name\":\"a\"}":{"f:spec":{"f:replicas":{}}}}}}}}`))
	}
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a",
		OwnerReferences: []metav1.OwnerReference{{UID: "env"}},
		ManagedFields:   []metav1.ManagedFieldsEntry{fields(controllers.FieldManager, `{"f:spec":{"f:replicas":{}}}`)}}}
	pool.Spec.Replicas = 5
	return e, map[string]*v1alpha1.SandboxPool{"a": pool}
}
