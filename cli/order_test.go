// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

func TestSorting(t *testing.T) {
	const fresh, lost = sandboxv1.ClusterState_FRESH, sandboxv1.ClusterState_UNREACHABLE
	at := func(second int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(second, 0)) }
	clusters := []*sandboxv1.Cluster{
		{Id: "a", State: lost, Idle: 9, LastSeen: durationpb.New(time.Hour), RegisteredAt: at(3)},
		{Id: "b", State: fresh, Idle: 10, LastSeen: durationpb.New(time.Second), RegisteredAt: at(1)},
		{Id: "c", State: fresh, Idle: 9, RegisteredAt: at(2)},
	}
	for by, want := range map[string]string{
		"": "a b c", "id": "a b c", "id desc": "c b a", "idle": "a c b", "idle desc": "b a c", "state": "b c a", "lastSeen": "c b a",
		"registeredAt desc": "a c b",
		"age":               `--sort-by: "age" is not valid, want one of: desired, envs, id, idle, lastSeen, pending, registeredAt, running`,
		"idle down":         `"idle down" is not valid`, "idle desc desc": "is not valid",
	} {
		items := slices.Clone(clusters)
		got := ""
		if err := clusterOrders.sort(items, by); err != nil {
			got = err.Error()
		} else {
			for _, c := range items {
				got += " " + c.GetId()
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("by %q: %s, want %s", by, got, want)
		}
	}
	envs := []*sandboxv1.Env{{Namespace: "a", Name: "x", Pending: 1}, {Namespace: "b", Name: "x", Pending: 10}, {Namespace: "c", Name: "x"}}
	if err := envOrders.sort(envs, "pending desc"); err != nil || envName(envs[0]) != "b/x" || envName(envs[2]) != "c/x" {
		t.Errorf("%v, %v", envs, err)
	}
}
