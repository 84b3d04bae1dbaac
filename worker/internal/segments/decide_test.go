// SPDX-License-Identifier: Apache-2.0

package segments

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/segment"
)

func TestDescribe(t *testing.T) {
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "py", UID: "u1", Generation: 4}}
	env.Spec.TemplateRef.Name = "python"
	env.Spec.Defaults = &v1alpha1.SandboxEnvDefaults{InstanceType: "small", Multiplier: 2}
	member := func(name string, replicas int32) v1alpha1.EnvClusterMember {
		m := v1alpha1.EnvClusterMember{Name: name, Config: v1alpha1.EnvClusterMemberConfig{
			InstanceType: "small", Multiplier: 2, ScalingGroup: "default", Priority: 7}}
		m.Spec.Replicas = replicas
		return m
	}
	env.Spec.Clusters = []v1alpha1.EnvClusterSpec{
		{ClusterID: "west", Members: []v1alpha1.EnvClusterMember{member("theirs", 9)}},
		{ClusterID: "east", Members: []v1alpha1.EnvClusterMember{
			member("saturated", 3), member("active", 5), member("gone", 1), member("leaving", 1), member("odd", 1), member("late", 1),
			member("paused", 1), member("paused-gone", 1), member("theirs", 1)}},
	}
	state := func(name string, s v1alpha1.ObservedMemberState) v1alpha1.EnvObservedMember {
		return v1alpha1.EnvObservedMember{Name: name, State: s, IdleCount: 77}
	}
	env.Status.Clusters = []v1alpha1.EnvClusterStatus{
		{ClusterID: "west", ObservedMembers: []v1alpha1.EnvObservedMember{state("active", v1alpha1.ObservedMemberStateSaturated)}},
		{ClusterID: "east", IsLocal: true, ObservedMembers: []v1alpha1.EnvObservedMember{
			state("saturated", v1alpha1.ObservedMemberStateSaturated), state("active", v1alpha1.ObservedMemberStateActive),
			state("gone", v1alpha1.ObservedMemberStateActive), state("leaving", v1alpha1.ObservedMemberStateActive),
			state("odd", v1alpha1.ObservedMemberStateInconsistent), state("late", v1alpha1.ObservedMemberStateMissing),
			state("paused", v1alpha1.ObservedMemberStateActive), state("paused-gone", v1alpha1.ObservedMemberStateActive)}},
	}
	pools := func(name string) poolFacts {
		if name == "gone" {
			return poolFacts{readyIdle: 5}
		}
		p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelEnv: "py"}}}
		if name == "theirs" {
			p.Labels[v1alpha1.LabelEnv] = "other"
		}
		p.Spec.Replicas = 4
		if name == "active" {
			p.Spec.DefaultStartupTimeout = &metav1.Duration{Duration: 5 * time.Minute}
		}
		p.Spec.Template.Spec.Containers = []corev1.Container{{Image: "img:1"}, {Image: "sidecar:1"}}
		p.Status = v1alpha1.SandboxPoolStatus{IdleReplicas: 3, RunningReplicas: 1, StartingReplicas: 2}
		if name == "leaving" || name == "paused-gone" {
			p.DeletionTimestamp = &metav1.Time{}
		}
		return poolFacts{pool: p, readyIdle: 2, claiming: 3, waiting: 1, queueCapacity: 100, paused: strings.HasPrefix(name, "paused")}
	}
	const want = `default/py u1 g4 python small×2
active small×2 default p7 Active idle=3 ready=2+3 running=3 desired=5 current=4 pending=1/100 grow=false img:1 5m0s
gone small×2 default p7 Missing idle=0 ready=0+0 running=0 desired=1 current=0 pending=0/0 grow=false 
late small×2 default p7 Active idle=3 ready=2+3 running=3 desired=1 current=4 pending=1/100 grow=false img:1
leaving small×2 default p7 Missing idle=3 ready=2+3 running=3 desired=1 current=4 pending=1/100 grow=false img:1
odd small×2 default p7 Inconsistent idle=3 ready=2+3 running=3 desired=1 current=4 pending=1/100 grow=false img:1
paused small×2 default p7 Inconsistent idle=3 ready=2+3 running=3 desired=1 current=4 pending=1/100 grow=false img:1
paused-gone small×2 default p7 Missing idle=3 ready=2+3 running=3 desired=1 current=4 pending=1/100 grow=false img:1
saturated small×2 default p7 Saturated idle=3 ready=2+3 running=3 desired=3 current=4 pending=1/100 grow=false img:1
theirs small×2 default p7 Inconsistent idle=0 ready=0+0 running=0 desired=1 current=0 pending=0/0 grow=false img:1
`
	if got := render(segmentOf(env, "east", pools)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := render(segmentOf(env, "north", pools)); got != "default/py u1 g4 python small×2\n" {
		t.Errorf("a cluster that the Env does not name has\n%s", got)
	}
}

// I14: whatever is in an Env and its pools, the hub accepts the segment, and with it the whole report.
func TestI14WhatANamespaceEditorWritesFitsIntoASegment(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "py"}}
	env.Spec.TemplateRef.Name = long
	env.Spec.Defaults = &v1alpha1.SandboxEnvDefaults{InstanceType: long}
	mine := v1alpha1.EnvClusterSpec{ClusterID: "east"}
	for i := range 32 {
		mine.Members = append(mine.Members, v1alpha1.EnvClusterMember{Name: fmt.Sprintf("%s-%02d", long[:60], i),
			Config: v1alpha1.EnvClusterMemberConfig{InstanceType: long[:253], ScalingGroup: long[:63]}})
	}
	mine.Members = append(mine.Members, v1alpha1.EnvClusterMember{Name: "a..b"}, v1alpha1.EnvClusterMember{Name: "long",
		Config: v1alpha1.EnvClusterMemberConfig{InstanceType: long, ScalingGroup: long}})
	env.Spec.Clusters = []v1alpha1.EnvClusterSpec{mine}
	for _, image := range []string{long, long[:1024]} {
		s := segmentOf(env, "east", func(string) poolFacts {
			p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelEnv: "py"}}}
			p.Spec.Template.Spec.Containers = []corev1.Container{{Image: image}}
			return poolFacts{pool: p}
		})
		if got, err := segment.FromProto(s.Proto()); err != nil || len(got.Members()) != 33 {
			t.Errorf("an image of %d bytes: %v, %v", len(image), got, err)
		} else if shape := got.Members()[1].Shape.Get(); shape.InstanceType != long[:253] || (shape.Image == image) != (len(image) <= 1024) {
			t.Errorf("an image of %d bytes is %d there, a type of 253 %d", len(image), len(shape.Image), len(shape.InstanceType))
		}
	}
}

// What only a person can cure is reported; what may pass by itself, or concerns an older generation, is not.
func TestFaultOf(t *testing.T) {
	for name, tc := range map[string]struct {
		status     metav1.ConditionStatus
		reason     v1alpha1.ConditionReason
		generation int64
		want       string
	}{
		"no template":        {metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound, 4, "TemplateNotFound: why"},
		"hidden template":    {metav1.ConditionFalse, v1alpha1.ReasonTemplateNotVisible, 4, "TemplateNotVisible: why"},
		"unknown type":       {metav1.ConditionFalse, v1alpha1.ReasonMembersInvalid, 4, "MembersInvalid: why"},
		"OnDemandJob":        {metav1.ConditionFalse, v1alpha1.ReasonModeNotSupported, 4, "ModeNotSupported: why"},
		"another's pool":     {metav1.ConditionFalse, v1alpha1.ReasonMembersInconsistent, 4, "MembersInconsistent: why"},
		"pools are made":     {metav1.ConditionFalse, v1alpha1.ReasonMembersMissing, 4, ""},
		"ready":              {metav1.ConditionTrue, v1alpha1.ReasonMembersReady, 4, ""},
		"of an older object": {metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound, 3, ""},
	} {
		env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Generation: 4}}
		env.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxEnvConditionReady, Status: tc.status, Reason: string(tc.reason),
			Message: "why", ObservedGeneration: tc.generation}}
		if got := faultOf(env); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	env := &v1alpha1.SandboxEnv{}
	env.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxEnvConditionReady, Status: metav1.ConditionFalse,
		Reason: string(v1alpha1.ReasonMembersInvalid), Message: strings.Repeat("x", 4096)}}
	s := segmentOf(env, "east", nil)
	if got := len(s.Defaults.Get().Fault); got > segment.MaxString || got < 900 {
		t.Errorf("a long fault has %d bytes", got)
	}
}

// A pool without an Env that waits for its template serves no claim until a person cures it.
func TestStandInSaysWhatAPoolWaitsFor(t *testing.T) {
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "alone", Generation: 3}}
	pool.Spec.TemplateName = "python"
	s := New(Options{ClusterID: "east"})
	report := func() (segment.State, string) {
		out := segmentOf(s.standIn(pool), "east", func(string) poolFacts { return poolFacts{pool: pool} })
		return out.Members()[0].State, out.Defaults.Get().Fault
	}
	for _, step := range []struct {
		name   string
		change func()
		state  segment.State
		fault  string
	}{
		{"nothing is known yet", func() {}, segment.Active, ""},
		{"no template", func() {
			pool.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxPoolConditionTemplateConsistent, Status: metav1.ConditionFalse,
				Reason: string(v1alpha1.ReasonTemplateNotFound), Message: "why", ObservedGeneration: 3}}
		}, segment.Inconsistent, "TemplateNotFound: alone: why"},
		{"said of an older generation", func() { pool.Generation = 4 }, segment.Active, ""},
		{"the template is gone, and the pool goes on", func() {
			pool.Generation = 3
			pool.Annotations = map[string]string{v1alpha1.SandboxPoolTemplateNameAnnotationKey: "python"}
			pool.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "i"}}
		}, segment.Active, ""},
	} {
		step.change()
		if state, fault := report(); state != step.state || fault != step.fault {
			t.Errorf("%s: %s, %q; want %s, %q", step.name, state, fault, step.state, step.fault)
		}
	}
}

func TestNamedBy(t *testing.T) {
	for _, tc := range []struct{ named, want string }{
		{"", ""}, {"east", ""}, {"west,east,mars", "east,mars,west"}, {"mars", "mars"}, {"mars,No!", "mars"}, {"east,none-mars", ""},
	} {
		env := &v1alpha1.SandboxEnv{}
		for id := range strings.SplitSeq(tc.named, ",") {
			c := v1alpha1.EnvClusterSpec{ClusterID: id, Members: []v1alpha1.EnvClusterMember{{Name: "main"}}}
			if strings.HasPrefix(id, "none-") {
				c.Members = nil
			}
			env.Spec.Clusters = append(env.Spec.Clusters, c)
		}
		if got := segmentOf(env, "east", func(string) poolFacts { return poolFacts{} }).Defaults.Get().Named; got != tc.want {
			t.Errorf("of %q it reports %q, want %q", tc.named, got, tc.want)
		}
	}
}

func render(s *segment.Segment) string {
	var b strings.Builder
	d := s.Defaults.Get()
	fmt.Fprintf(&b, "%s %s g%d %s %s×%d\n", s.Key(), s.UID(), s.Generation, d.Template, d.InstanceType, d.Multiplier)
	for _, m := range s.Members() {
		shape := m.Shape.Get()
		image := shape.Image
		if shape.StartupTimeout != 0 {
			image += " " + shape.StartupTimeout.String()
		}
		fmt.Fprintf(&b, "%s %s×%d %s p%d %s idle=%d ready=%d+%d running=%d desired=%d current=%d pending=%d/%d grow=%t %s\n",
			m.Name, shape.InstanceType, shape.Multiplier, shape.ScalingGroup, shape.Priority, m.State, m.Idle, m.ReadyIdle, m.Claiming, m.Running,
			m.Desired, m.Current, m.Pending, m.QueueCapacity, m.CanGrow, image)
	}
	return b.String()
}
