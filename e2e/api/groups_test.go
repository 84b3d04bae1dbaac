// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/e2e/must"
)

const farGroup = `
- {op: replace, path: /spec/clusters/1/members/0/config/scalingGroup, value: far}
- {op: add, path: /spec/autoscaling/groups/-, value: {name: far}}`

// A group may lose its members while autoscaling is unchanged: the sync path, or the segment's owner, removes a foreign
// segment, and no later write of other fields is refused for it.
func TestGroupsMayLoseTheirMembers(t *testing.T) {
	ctx, r := newObjects(t, envs)
	create(ctx, t, r, patched(t, manifest(t, "env.yaml"), farGroup))

	for _, step := range []struct{ name, patch string }{
		{"the foreign segment goes", `[{op: remove, path: /spec/clusters/1}]`},
		{"the autoscaler scales", `[{op: replace, path: /spec/clusters/0/members/0/spec/replicas, value: 9}]`},
		{"the user changes a member", `[{op: replace, path: /spec/clusters/0/members/0/config/priority, value: 1}]`},
		{"the user adds a member", `[{op: add, path: /spec/clusters/0/members/-, value: {name: more}}]`},
		{"the segment comes back", `
- op: add
  path: /spec/clusters/-
  value: {clusterID: west, members: [{name: swe-west, config: {instanceType: c2.small, multiplier: 2, scalingGroup: far}}]}`},
		{"and goes", `[{op: remove, path: /spec/clusters/2}]`},
		{"a group goes", `[{op: remove, path: /spec/clusters/0/members/1}, {op: remove, path: /spec/autoscaling}]`},
	} {
		if _, err := jsonPatch(ctx, t, r, "swe", step.patch); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
	}
}

// The status can be written in any state of the groups.
func TestEmptyGroupsDoNotHoldUpStatus(t *testing.T) {
	ctx, r := newObjects(t, envs)
	create(ctx, t, r, patched(t, manifest(t, "env.yaml"), farGroup))
	mustPatch(ctx, t, r, "swe", `[{op: remove, path: /spec/clusters/1}]`)
	check(t, mustPatch(ctx, t, r, "swe", envStatus, "status"), map[string]any{"/status/memberCount": 4})
}

// A change of autoscaling is validated for members again.
func TestChangedGroupsNeedMembers(t *testing.T) {
	ctx, r := newObjects(t, envs)
	create(ctx, t, r, patched(t, manifest(t, "env.yaml"), farGroup))
	mustPatch(ctx, t, r, "swe", `[{op: remove, path: /spec/clusters/1}]`)

	_, err := jsonPatch(ctx, t, r, "swe", `[{op: replace, path: /spec/autoscaling/groups/0/maxReplicas, value: 41}]`)
	refusal(t, err, "spec.autoscaling", "needs a member")
	_, err = jsonPatch(ctx, t, r, "swe", `[{op: add, path: /spec/autoscaling/groups/-, value: {name: new}}]`)
	refusal(t, err, "spec.autoscaling", "needs a member")

	// With a member in the same request, or without the group, it goes through.
	mustPatch(ctx, t, r, "swe", `
- {op: replace, path: /spec/autoscaling/groups/0/maxReplicas, value: 41}
- {op: add, path: /spec/clusters/0/members/-, value: {name: far, config: {scalingGroup: far}}}`)
}

// A user's client-side apply of an older manifest removes foreign segments, and is not refused for it either.
func TestReapplyMayEmptyGroups(t *testing.T) {
	ctx, r := newObjects(t, envs)
	create(ctx, t, r, patched(t, manifest(t, "env.yaml"), farGroup))
	got, err := r.Get(ctx, "swe", metav1.GetOptions{})
	must.Succeed(t, err)
	_, err = r.Update(ctx, patched(t, got, `[{op: remove, path: /spec/clusters/1}]`), metav1.UpdateOptions{})
	must.Succeed(t, err)
}

// The rules' run-time budget is fixed per request, whatever the schema: a realistically large Env must stay far below it.
func TestRulesFitTheBudgetOfALargeEnv(t *testing.T) {
	ctx := testContext(t)
	namespace := newNamespace(ctx, t)
	const clusters, members, groups = 100, 10, 16
	var list, scaling []any
	for g := range groups {
		scaling = append(scaling, map[string]any{"name": fmt.Sprintf("g%d", g)})
	}
	for c := range clusters {
		var pools []any
		for m := range members {
			pools = append(pools, map[string]any{
				"name": fmt.Sprintf("m%d", m),
				"config": map[string]any{
					"scalingGroup": fmt.Sprintf("g%d", (c*members+m)%groups),
					"instanceType": "c2.small", "multiplier": int64(1),
				},
			})
		}
		list = append(list, map[string]any{"clusterID": fmt.Sprintf("c%d", c), "members": pools})
	}
	env := manifest(t, "env.yaml")
	env.Object["spec"] = map[string]any{
		"templateRef": map[string]any{"name": "t"},
		"autoscaling": map[string]any{"groups": scaling},
		"clusters":    list,
	}
	create(ctx, t, client.Resource(envs).Namespace(namespace), env)
}
