// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	hubmanifest "navix.sh/atoll/pkg/manifest"
)

// change is a JSON patch, in YAML, of one of the manifests in testdata. These are valid, so a refusal is due to the change.
type change struct {
	name  string
	file  string
	patch string
	// field and why must both be in the message of a refusal.
	field, why string
}

const (
	members = "/spec/clusters/0/members"
	groups  = "/spec/autoscaling/groups"
)

var refused = []change{
	// Shape: what the schema says.
	{name: "an unknown mode", file: "env.yaml", patch: `[{op: replace, path: /spec/mode, value: Cold}]`,
		field: "spec.mode", why: "WarmPool"},
	{name: "no template", file: "env.yaml", patch: `[{op: remove, path: /spec/templateRef}]`,
		field: "spec.templateRef", why: "Required"},
	{name: "a template without a name", file: "env.yaml", patch: `[{op: replace, path: /spec/templateRef/name, value: ""}]`,
		field: "spec.templateRef.name", why: "at least 1"},
	{name: "no spec", file: "env.yaml", patch: `[{op: remove, path: /spec}]`, field: "spec", why: "Required"},
	{name: "a default multiplier of 0", file: "env.yaml", patch: `[{op: replace, path: /spec/defaults/multiplier, value: 0}]`,
		field: "spec.defaults.multiplier", why: "greater than or equal to 1"},
	{name: "an unknown image policy in the overrides", file: "env.yaml",
		patch: `[{op: replace, path: /spec/overrides/podCreationImagePolicy, value: Whatever}]`,
		field: "spec.overrides.podCreationImagePolicy", why: "PoolDefaultImage"},
	{name: "a timeout that is no Go duration", file: "env.yaml",
		patch: `[{op: replace, path: /spec/overrides/defaultIdleTimeout, value: 5 days}]`,
		field: "spec.overrides.defaultIdleTimeout", why: "must be a duration"},
	{name: "a negative timeout", file: "env.yaml",
		patch: `[{op: replace, path: /spec/overrides/defaultStartupTimeout, value: -5s}]`,
		field: "spec.overrides.defaultStartupTimeout", why: "not negative"},
	{name: "a name that is no label", file: "env.yaml", patch: `[{op: replace, path: /metadata/name, value: ` + long + `}]`,
		field: "metadata.name", why: "at most 63"},
	// Clusters and members.
	{name: "a cluster without an id", file: "env.yaml", patch: `[{op: remove, path: /spec/clusters/0/clusterID}]`,
		field: "spec.clusters[0].clusterID", why: "Required"},
	{name: "a cluster id in capitals", file: "env.yaml", patch: `[{op: replace, path: /spec/clusters/0/clusterID, value: East}]`,
		field: "spec.clusters[0].clusterID", why: "should match"},
	{name: "a cluster id that starts with a digit", file: "env.yaml",
		patch: `[{op: replace, path: /spec/clusters/0/clusterID, value: 1east}]`,
		field: "spec.clusters[0].clusterID", why: "should match"},
	{name: "a cluster id that ends with a dash", file: "env.yaml",
		patch: `[{op: replace, path: /spec/clusters/0/clusterID, value: east-}]`,
		field: "spec.clusters[0].clusterID", why: "should match"},
	{name: "a cluster id of 31 characters", file: "env.yaml",
		patch: `[{op: replace, path: /spec/clusters/0/clusterID, value: aaaaaaaaaabbbbbbbbbbccccccccccd}]`,
		field: "spec.clusters[0].clusterID", why: "30"},
	{name: "a cluster twice", file: "env.yaml", patch: `[{op: replace, path: /spec/clusters/2/clusterID, value: east}]`,
		field: "spec.clusters[2]", why: "Duplicate"},
	{name: "a member without a name", file: "env.yaml", patch: `[{op: remove, path: ` + members + `/0/name}]`,
		field: "spec.clusters[0].members[0].name", why: "Required"},
	{name: "a member's name that no pool can have", file: "env.yaml",
		patch: `[{op: replace, path: ` + members + `/0/name, value: Swe_East}]`,
		field: "spec.clusters[0].members[0].name", why: "should match"},
	{name: "a member twice", file: "env.yaml", patch: `[{op: replace, path: ` + members + `/1/name, value: swe-east}]`,
		field: "spec.clusters[0].members[1]", why: "Duplicate"},
	{name: "an instance type without a multiplier", file: "env.yaml",
		patch: `[{op: remove, path: ` + members + `/2/config/multiplier}]`,
		field: "spec.clusters[0].members[2].config.multiplier", why: "instanceType requires"},
	{name: "an instance type with a multiplier of 0", file: "env.yaml",
		patch: `[{op: replace, path: ` + members + `/2/config/multiplier, value: 0}]`,
		field: "spec.clusters[0].members[2].config.multiplier", why: "at least 1"},
	{name: "a negative multiplier", file: "env.yaml",
		patch: `[{op: replace, path: ` + members + `/2/config/multiplier, value: -1}]`,
		field: "spec.clusters[0].members[2].config.multiplier", why: "greater than or equal to 0"},
	{name: "a scaling group that is no label", file: "env.yaml",
		patch: `[{op: replace, path: ` + members + `/2/config/scalingGroup, value: "not a label"}]`,
		field: "spec.clusters[0].members[2].config.scalingGroup", why: "should match"},
	{name: "a member's floor above its ceiling", file: "env.yaml",
		patch: `[{op: replace, path: ` + members + `/0/config/minReplicas, value: 21}]`,
		field: "spec.clusters[0].members[0].config.minReplicas", why: "must not be greater than maxReplicas"},
	{name: "a member's negative floor", file: "env.yaml",
		patch: `[{op: replace, path: ` + members + `/0/config/minReplicas, value: -1}]`,
		field: "spec.clusters[0].members[0].config.minReplicas", why: "greater than or equal to 0"},
	{name: "a member's negative ceiling", file: "env.yaml",
		patch: `[{op: replace, path: ` + members + `/0/config/maxReplicas, value: -1}]`,
		field: "spec.clusters[0].members[0].config.maxReplicas", why: "greater than or equal to 0"},
	{name: "a quantity that is none", file: "env.yaml",
		patch: `[{op: replace, path: ` + members + `/1/config/inlineResources/limits/cpu, value: lots}]`,
		field: "spec.clusters[0].members[1].config.inlineResources.limits.cpu", why: "should match"},
	{name: "a snapshot with negative replicas", file: "env.yaml",
		patch: `[{op: replace, path: ` + members + `/0/spec/replicas, value: -1}]`,
		field: "spec.clusters[0].members[0].spec.replicas", why: "greater than or equal to 0"},
	{name: "a snapshot without replicas", file: "env.yaml", patch: `[{op: remove, path: ` + members + `/0/spec/replicas}]`,
		field: "spec.clusters[0].members[0].spec.replicas", why: "Required"},
	// Autoscaling.
	{name: "an Aggressive group without a ceiling", file: "env.yaml", patch: `[{op: remove, path: ` + groups + `/0/maxReplicas}]`,
		field: "spec.autoscaling.groups[0].maxReplicas", why: "Aggressive scaleUpPolicy.mode requires maxReplicas"},
	{name: "a group's floor above its ceiling", file: "env.yaml",
		patch: `[{op: replace, path: ` + groups + `/0/minReplicas, value: 41}]`,
		field: "spec.autoscaling.groups[0].minReplicas", why: "must not be greater than maxReplicas"},
	{name: "a group's negative floor", file: "env.yaml", patch: `[{op: replace, path: ` + groups + `/0/minReplicas, value: -1}]`,
		field: "spec.autoscaling.groups[0].minReplicas", why: "greater than or equal to 0"},
	{name: "an unknown scale-up mode", file: "env.yaml",
		patch: `[{op: replace, path: ` + groups + `/0/scaleUpPolicy/mode, value: Wild}]`,
		field: "spec.autoscaling.groups[0].scaleUpPolicy.mode", why: "Conservative"},
	{name: "a negative cooldown", file: "env.yaml",
		patch: `[{op: replace, path: ` + groups + `/0/scaleUpPolicy/cooldownSeconds, value: -1}]`,
		field: "spec.autoscaling.groups[0].scaleUpPolicy.cooldownSeconds", why: "greater than or equal to 0"},
	{name: "a negative protection window", file: "env.yaml",
		patch: `[{op: replace, path: ` + groups + `/0/scaleDownPolicy/protectionWindowSeconds, value: -1}]`,
		field: "spec.autoscaling.groups[0].scaleDownPolicy.protectionWindowSeconds", why: "greater than or equal to 0"},
	{name: "a group without a name", file: "env.yaml", patch: `[{op: replace, path: ` + groups + `/0/name, value: ""}]`,
		field: "spec.autoscaling.groups[0].name", why: "at least 1"},
	{name: "a group twice", file: "env.yaml", patch: `[{op: replace, path: ` + groups + `/1/name, value: small}]`,
		field: "spec.autoscaling.groups[1]", why: "Duplicate"},
	{name: "a group that no member names", file: "env.yaml", patch: `[{op: add, path: ` + groups + `/-, value: {name: lonely}}]`,
		field: "spec.autoscaling", why: "needs a member"},
	{name: "groups and no clusters", file: "env.yaml", patch: `[{op: remove, path: /spec/clusters}]`,
		field: "spec.autoscaling", why: "needs a member"},
	{name: "two multipliers in a group, across clusters", file: "env.yaml",
		patch: `[{op: replace, path: /spec/clusters/1/members/0/config/multiplier, value: 3}]`,
		field: "spec.clusters", why: "same config.instanceType and config.multiplier"},
	{name: "two instance types in a group", file: "env.yaml",
		patch: `[{op: replace, path: ` + members + `/2/config/scalingGroup, value: small}]`,
		field: "spec.clusters", why: "same config.instanceType and config.multiplier"},
	{name: "two sizes of inline resources in a group", file: "env.yaml",
		patch: `[{op: add, path: ` + members + `/-, value: {name: other, config: {scalingGroup: former,
			inlineResources: {requests: {cpu: 501m, memory: 1Gi}, limits: {cpu: 2, memory: 2Gi}}}}}]`,
		field: "spec.clusters", why: "identical config.inlineResources"},
	{name: "an instance type beside inline resources in a group", file: "env.yaml",
		patch: `[{op: replace, path: ` + members + `/2/config/scalingGroup, value: former}]`,
		field: "spec.clusters", why: "identical config.inlineResources"},
	// Pools and templates.
	{name: "a pool without replicas", file: "pool.yaml", patch: `[{op: remove, path: /spec/replicas}]`,
		field: "spec.replicas", why: "Required"},
	{name: "a pool with negative replicas", file: "pool.yaml", patch: `[{op: replace, path: /spec/replicas, value: -1}]`,
		field: "spec.replicas", why: "greater than or equal to 0"},
	{name: "more replicas than the Go type holds", file: "pool.yaml",
		patch: `[{op: replace, path: /spec/replicas, value: 2147483648}]`, field: "spec.replicas", why: "int32"},
	{name: "a pool's unknown image policy", file: "pool.yaml",
		patch: `[{op: replace, path: /spec/podCreationImagePolicy, value: ""}]`,
		field: "spec.podCreationImagePolicy", why: "IdleImage"},
	{name: "a pool's timeout that no Go duration holds", file: "pool.yaml",
		patch: `[{op: replace, path: /spec/defaultIdleTimeout, value: 9999999999h}]`,
		field: "spec.defaultIdleTimeout", why: "must be a duration"},
	{name: "a Pod template that is no object", file: "pool.yaml", patch: `[{op: replace, path: /spec/template, value: hello}]`,
		field: "spec.template", why: "object"},
	{name: "a runtime without a name", file: "pool.yaml", patch: `[{op: remove, path: /spec/runtimes/0/name}]`,
		field: "spec.runtimes[0].name", why: "Required"},
	{name: "a runtime twice", file: "pool.yaml", patch: `[{op: copy, from: /spec/runtimes/0, path: /spec/runtimes/-}]`,
		field: "spec.runtimes[1]", why: "Duplicate"},
	{name: "a port that there is not", file: "pool.yaml", patch: `[{op: replace, path: /spec/runtimes/0/port, value: 65536}]`,
		field: "spec.runtimes[0].port", why: "less than or equal to 65535"},
	{name: "an unknown protocol", file: "template.yaml", patch: `[{op: replace, path: /spec/runtimes/0/protocol, value: HTTP}]`,
		field: "spec.runtimes[0].protocol", why: "SCTP"},
	{name: "a probe without its port", file: "template.yaml",
		patch: `[{op: add, path: /spec/runtimes/0/readinessProbe, value: {httpGet: {path: /}}}]`,
		field: "spec.runtimes[0].readinessProbe.httpGet.port", why: "Required"},
}

const long = "a123456789b123456789c123456789d123456789e123456789f123456789g123"

func TestRefused(t *testing.T) {
	ctx := testContext(t)
	namespace := newNamespace(ctx, t)
	for _, tt := range refused {
		t.Run(tt.name, func(t *testing.T) {
			obj := patched(t, manifest(t, tt.file), tt.patch)
			_, err := resource(tt.file, namespace).Create(ctx, obj, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			refusal(t, err, tt.field, tt.why)
			if tt.file == "pool.yaml" {
				return
			}
			if tt.file == "env.yaml" {
				obj.SetNamespace(namespace)
			}
			// The hub refuses the manifest in the same words.
			if at := hubmanifest.Check(ctx, obj.Object, nil); at == nil || at.Error() != err.Error() {
				t.Errorf("the hub says\n%v\nthe API server\n%v", at, err)
			}
		})
	}
}

// refusal checks that err is one, and that its message names the field and says why.
func refusal(t *testing.T, err error, field, why string) {
	t.Helper()
	switch {
	case err == nil:
		t.Fatal("was accepted")
	case !apierrors.IsInvalid(err):
		t.Fatalf("was refused as %s: %v", apierrors.ReasonForError(err), err)
	case !strings.Contains(err.Error(), field):
		t.Errorf("the message does not name %s: %v", field, err)
	case !strings.Contains(err.Error(), why):
		t.Errorf("the message does not say %q: %v", why, err)
	}
}

// resource is where the object of a file in testdata goes.
func resource(file, namespace string) dynamic.ResourceInterface {
	switch file {
	case "env.yaml":
		return client.Resource(envs).Namespace(namespace)
	case "pool.yaml":
		return client.Resource(pools).Namespace(namespace)
	default:
		return client.Resource(templates)
	}
}
