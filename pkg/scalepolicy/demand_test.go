// SPDX-License-Identifier: Apache-2.0

package scalepolicy

import (
	"testing"

	"navix.sh/atoll/api/v1alpha1"
)

func TestDemand(t *testing.T) {
	n := func(n int32) *int32 { return &n }
	noRoom := []Stop{{Reason: ReasonNoRoom}}
	// One member has more replicas than Pods, the other one more Pods than replicas.
	two := []Member{
		{Replicas: 5, Pods: Counts{Running: 1, Idle: 2}, Queue: 4},
		{Replicas: 1, Pods: Counts{Running: 2, Starting: 1, Stopping: 1, Idle: 3}},
	}
	to := []MemberDecision{{To: 6}, {To: 2}}
	for _, tt := range []struct {
		name                string
		group               Group
		decision            Decision
		held, after, demand int32
	}{
		{"what is busy and waits", Group{Members: two}, Decision{Members: to}, 12, 13, 9},
		{"others count as held, and are no demand", Group{Members: two, Others: 10}, Decision{Members: to}, 22, 23, 9},
		{
			"floors of members are together",
			Group{Members: []Member{{Replicas: 4, MinReplicas: n(4)}, {Replicas: 3, MinReplicas: n(3)}}},
			Decision{Members: []MemberDecision{{To: 4}, {To: 3}}}, 7, 7, 7,
		},
		{
			"the group's floor, where this cluster keeps all of it",
			Group{Members: two, Policy: v1alpha1.EnvAutoscalingGroup{MinReplicas: n(20)}}, Decision{Members: to}, 12, 13, 20,
		},
		{
			"a part of the group's floor is none",
			Group{Members: two, Policy: v1alpha1.EnvAutoscalingGroup{MinReplicas: n(20)}, Floor: n(15)}, Decision{Members: to}, 12, 13, 9,
		},
		{
			"growth that room stopped is one more than what is held after it",
			Group{Members: two}, Decision{Members: []MemberDecision{{To: 6}, {To: 2, Stops: noRoom}}}, 12, 13, 14,
		},
		{
			"growth that room stopped, of the first of two gates and members",
			Group{Members: two},
			Decision{Members: []MemberDecision{{To: 6, Stops: append(noRoom, Stop{Reason: ReasonSaturated})}, {To: 2}}}, 12, 13, 14,
		},
		{
			"another gate is no demand",
			Group{Members: two}, Decision{Members: []MemberDecision{{To: 6, Stops: []Stop{{Reason: ReasonSaturated}}}, {To: 2}}}, 12, 13, 9,
		},
		{
			"never more than the group's maximum",
			Group{Members: two, Policy: v1alpha1.EnvAutoscalingGroup{MaxReplicas: n(8)}}, Decision{Members: to}, 12, 13, 8,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.group.Held(); got != tt.held {
				t.Errorf("Held: %d, want %d", got, tt.held)
			}
			if got := tt.group.HeldAfter(&tt.decision); got != tt.after {
				t.Errorf("HeldAfter: %d, want %d", got, tt.after)
			}
			if got := tt.group.Demand(&tt.decision); got != tt.demand {
				t.Errorf("Demand: %d, want %d", got, tt.demand)
			}
		})
	}
}
