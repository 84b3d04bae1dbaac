// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

// accepted holds what a rule might refuse by mistake.
var accepted = []change{
	{name: "as it is", file: "env.yaml", patch: `[]`},
	{name: "no autoscaling: members of the default group may have any size", file: "env.yaml",
		patch: `
- {op: remove, path: /spec/autoscaling}
- {op: replace, path: ` + members + `/0/config/scalingGroup, value: default}
- {op: replace, path: ` + members + `/2/config/scalingGroup, value: default}`},
	{name: "autoscaling without groups", file: "env.yaml", patch: `[{op: remove, path: ` + groups + `}]`},
	{name: "members of a group that autoscaling does not list", file: "env.yaml",
		patch: `
- {op: remove, path: ` + members + `/2/config/scalingGroup}
- {op: add, path: ` + members + `/-, value: {name: other, config: {instanceType: c2.tiny, multiplier: 1}}}`},
	{name: "excluded members of any size", file: "env.yaml",
		patch: `[{op: add, path: ` + members + `/-, value: {name: other, config: {scalingGroup: "", instanceType: x, multiplier: 9}}}]`},
	{name: "one size by instance type, whatever inline resources are on record", file: "env.yaml",
		patch: `[{op: add, path: ` + members + `/0/config/inlineResources, value: {limits: {cpu: 1}}}]`},
	{name: "a member on its way to an instance type beside one that has only inline resources", file: "env.yaml",
		patch: `[{op: add, path: ` + members + `/-, value: {name: other, config: {scalingGroup: former, instanceType: c2.small,
			multiplier: 1, inlineResources: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 2, memory: 2Gi}}}}}]`},
	{name: "a group whose only member is in another cluster", file: "env.yaml",
		patch: `
- {op: replace, path: /spec/clusters/1/members/0/config/scalingGroup, value: far}
- {op: add, path: ` + groups + `/-, value: {name: far}}`},
	{name: "members without any size have the template's", file: "env.yaml",
		patch: `
- {op: remove, path: ` + members + `/1/config/inlineResources}
- {op: add, path: ` + members + `/-, value: {name: other, config: {scalingGroup: former}}}`},
	{name: "a multiplier without an instance type", file: "env.yaml",
		patch: `[{op: add, path: ` + members + `/1/config/multiplier, value: 0}]`},
	{name: "an empty instance type", file: "env.yaml", patch: `[{op: add, path: ` + members + `/1/config/instanceType, value: ""}]`},
	{name: "an Aggressive group with a ceiling of 0", file: "env.yaml",
		patch: `
- {op: replace, path: ` + groups + `/0/maxReplicas, value: 0}
- {op: replace, path: ` + groups + `/0/minReplicas, value: 0}`},
	{name: "negative priorities", file: "env.yaml", patch: `[{op: replace, path: ` + members + `/0/config/priority, value: -3}]`},
	{name: "the mode that is not built", file: "env.yaml", patch: `[{op: replace, path: /spec/mode, value: OnDemandJob}]`},
	{name: "an Env with nothing but a template", file: "env.yaml",
		patch: `[{op: replace, path: /spec, value: {templateRef: {name: t}}}]`},
	{name: "nulls for what is optional", file: "env.yaml",
		patch: `[{op: replace, path: /spec, value: {templateRef: {name: t, version: null}, mode: null, clusters: null, autoscaling: null}}]`},
	{name: "a null scaling group is the default one", file: "env.yaml",
		patch: `[{op: add, path: ` + members + `/-, value: {name: other, config: {scalingGroup: null, priority: null}}}]`},
	{name: "the longest names", file: "env.yaml",
		patch: `
- {op: replace, path: /metadata/name, value: ` + long[:63] + `}
- {op: replace, path: /spec/clusters/2/clusterID, value: ` + long[:30] + `}
- {op: replace, path: ` + members + `/0/name, value: ` + long[:63] + `}`},
	{name: "durations in every form that Go reads", file: "pool.yaml",
		patch: `
- {op: replace, path: /spec/defaultIdleTimeout, value: 1.5h}
- {op: replace, path: /spec/defaultStartupTimeout, value: "0"}`},
	{name: "a pool as it is", file: "pool.yaml", patch: `[]`},
	{name: "a pool with nothing but replicas", file: "pool.yaml", patch: `[{op: replace, path: /spec, value: {replicas: 0}}]`},
	{name: "an empty template", file: "template.yaml", patch: `[{op: replace, path: /spec, value: {}}]`},
}

func TestAccepted(t *testing.T) {
	ctx := testContext(t)
	namespace := newNamespace(ctx, t)
	kinds := map[string]any{
		"env.yaml": &v1alpha1.SandboxEnv{}, "pool.yaml": &v1alpha1.SandboxPool{}, "template.yaml": &v1alpha1.SandboxTemplate{},
	}
	for _, tt := range accepted {
		t.Run(tt.name, func(t *testing.T) {
			obj := patched(t, manifest(t, tt.file), tt.patch)
			got, err := resource(tt.file, namespace).Create(ctx, obj, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			must.Succeed(t, err)
			// One object that cannot be decoded stops the informer for all others.
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, kinds[tt.file]); err != nil {
				t.Errorf("decoding: %v", err)
			}
		})
	}
}

// Manifests go in by kubectl the way users send them, in both kinds of apply, and an unchanged one changes nothing.
func TestManifestsApply(t *testing.T) {
	ctx := testContext(t)
	namespace := newNamespace(ctx, t)
	for _, flags := range [][]string{nil, {"--server-side", "--force-conflicts"}} {
		for _, file := range []string{"env.yaml", "pool.yaml", "template.yaml"} {
			args := append([]string{"apply", "-n", namespace, "-f", "testdata/" + file}, flags...)
			if _, err := east.Kubectl(ctx, args...); err != nil {
				t.Fatalf("kubectl %v: %v", args, err)
			}
			out, err := east.Kubectl(ctx, args...)
			if err != nil {
				t.Fatalf("kubectl %v, again: %v", args, err)
			}
			if !strings.Contains(out, "unchanged") && !strings.Contains(out, "serverside-applied") {
				t.Errorf("kubectl %v, again: %s", args, out)
			}
		}
	}
	env, err := client.Resource(envs).Namespace(namespace).Get(ctx, "swe", metav1.GetOptions{})
	must.Succeed(t, err)
	check(t, env, map[string]any{"/metadata/generation": 1})
}
