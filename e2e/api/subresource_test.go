// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ac "navix.sh/atoll/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

const envStatus = `
- op: add
  path: /status
  value:
    memberCount: 4
    idleReplicas: 3
    runningReplicas: 2
    desiredReplicas: 6
    conditions:
    - {type: Ready, status: "False", reason: MembersMissing, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}
    - {type: Federated, status: "True", reason: InSync, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}`

func TestStatusIsASubresource(t *testing.T) {
	ctx, r := newObjects(t, envs)
	create(ctx, t, r, manifest(t, "env.yaml"))

	check(t, mustPatch(ctx, t, r, "swe", envStatus), map[string]any{"/status": nil})

	got := mustPatch(ctx, t, r, "swe", envStatus+`
- {op: replace, path: /spec/templateRef/name, value: other}`, "status")
	check(t, got, map[string]any{
		"/status/memberCount":    4,
		"/spec/templateRef/name": "swe-rex",
		"/metadata/generation":   1,
	})
}

// Entries of status.clusters belong to their appliers: the worker's and the sync path's stay separate.
func TestStatusSegmentsStayApart(t *testing.T) {
	ctx := testContext(t)
	namespace := newNamespace(ctx, t)
	r := client.Resource(envs).Namespace(namespace)
	create(ctx, t, r, manifest(t, "env.yaml"))

	segment := func(clusterID string, idle int32) *ac.SandboxEnvApplyConfiguration {
		return ac.SandboxEnv("swe", namespace).WithStatus(ac.SandboxEnvStatus().WithClusters(
			ac.EnvClusterStatus().WithClusterID(clusterID).WithObservedMembers(
				ac.EnvObservedMember().WithName("m").WithIdleCount(idle))))
	}
	apply(ctx, t, r, "atoll-worker", "swe", segment("east", 1), "status")
	apply(ctx, t, r, "atoll-sync", "swe", segment("west", 2), "status")
	got := apply(ctx, t, r, "atoll-worker", "swe", segment("east", 0), "status")
	check(t, got, map[string]any{
		"/status/clusters/0/clusterID":                   "east",
		"/status/clusters/0/observedMembers/0/idleCount": 0,
		"/status/clusters/1/clusterID":                   "west",
		"/status/clusters/1/observedMembers/0/idleCount": 2,
	})
	// An entry that a manager no longer applies is removed, and no other manager's.
	got = apply(ctx, t, r, "atoll-sync", "swe", ac.SandboxEnv("swe", namespace).WithStatus(ac.SandboxEnvStatus()), "status")
	check(t, got, map[string]any{
		"/status/clusters/0/clusterID": "east",
		"/status/clusters/1":           nil,
	})
}

func TestScale(t *testing.T) {
	ctx := testContext(t)
	namespace := newNamespace(ctx, t)
	r := client.Resource(pools).Namespace(namespace)
	create(ctx, t, r, manifest(t, "pool.yaml"))
	mustPatch(ctx, t, r, "tools", `
- {op: add, path: /status, value: {idleReplicas: 2, runningReplicas: 1, selector: agentbox.navix.sh/sandbox-pool=tools}}`, "status")

	if out, err := east.Kubectl(ctx, "-n", namespace, "scale", "sbp", "tools", "--current-replicas=3", "--replicas=7"); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	scale, err := r.Get(ctx, "tools", metav1.GetOptions{}, "scale")
	must.Succeed(t, err)
	check(t, scale, map[string]any{
		"/kind":            "Scale",
		"/spec/replicas":   7,
		"/status/replicas": 2,
		"/status/selector": "agentbox.navix.sh/sandbox-pool=tools",
	})
	pool, err := r.Get(ctx, "tools", metav1.GetOptions{})
	must.Succeed(t, err)
	check(t, pool, map[string]any{"/spec/replicas": 7})
}

// The columns show health, idle, running and desired counts.
func TestColumns(t *testing.T) {
	ctx := testContext(t)
	namespace := newNamespace(ctx, t)
	ofEnvs, ofPools := client.Resource(envs).Namespace(namespace), client.Resource(pools).Namespace(namespace)
	create(ctx, t, ofEnvs, manifest(t, "env.yaml"))
	mustPatch(ctx, t, ofEnvs, "swe", envStatus, "status")
	create(ctx, t, ofPools, patched(t, manifest(t, "pool.yaml"), `
- {op: add, path: /metadata/labels, value: {agentbox.navix.sh/env: swe}}`))
	mustPatch(ctx, t, ofPools, "tools", `
- {op: add, path: /status, value: {phase: Degraded, idleReplicas: 2, unavailableIdleReplicas: 1, runningReplicas: 5}}`, "status")

	for _, tt := range []struct {
		resource string
		wide     bool
		want     []string
	}{
		{resource: "sbe", want: []string{"NAME READY MEMBERS IDLE RUNNING DESIRED TEMPLATE AGE", "swe False 4 3 2 6 swe-rex"}},
		{
			resource: "sbe", wide: true,
			want: []string{
				"NAME READY MEMBERS IDLE RUNNING DESIRED TEMPLATE AGE MODE REASON AUTOSCALING FEDERATED",
				"WarmPool MembersMissing True",
			},
		},
		{resource: "sbp", want: []string{"NAME PHASE DESIRED IDLE UNAVAILABLE RUNNING ENV AGE", "tools Degraded 3 2 1 5 swe"}},
	} {
		args := []string{"-n", namespace, "get", tt.resource}
		if tt.wide {
			args = append(args, "-o", "wide")
		}
		out, err := east.Kubectl(ctx, args...)
		must.Succeed(t, err)
		var lines []string
		for line := range strings.Lines(out) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		if len(lines) != 2 || lines[0] != tt.want[0] || !strings.Contains(lines[1], tt.want[1]) {
			t.Errorf("kubectl %v (-want +got):\n%s", args, cmp.Diff(tt.want, lines))
		}
	}
}
