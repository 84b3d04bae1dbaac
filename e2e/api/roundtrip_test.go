// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"navix.sh/atoll/api/v1alpha1"
	ac "navix.sh/atoll/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

// A manifest with every field set is returned unchanged: nothing is pruned, defaulted or normalised.
func TestFullManifestsComeBackUnchanged(t *testing.T) {
	ctx := testContext(t)
	namespace := newNamespace(ctx, t)
	for file, r := range map[string]dynamic.ResourceInterface{
		"env.yaml":      client.Resource(envs).Namespace(namespace),
		"pool.yaml":     client.Resource(pools).Namespace(namespace),
		"template.yaml": client.Resource(templates),
	} {
		t.Run(file, func(t *testing.T) {
			asked := manifest(t, file)
			asked.SetName(namespace) // Templates have no namespace to be alone in.
			create(ctx, t, r, asked)
			got, err := r.Get(ctx, asked.GetName(), metav1.GetOptions{})
			must.Succeed(t, err)
			if diff := cmp.Diff(asked.Object["spec"], got.Object["spec"]); diff != "" {
				t.Errorf("spec (-asked +stored):\n%s", diff)
			}
			// Sending back what was read, as replace and edit do, changes nothing either.
			replaced, err := r.Update(ctx, got, metav1.UpdateOptions{})
			must.Succeed(t, err)
			if got.GetResourceVersion() != replaced.GetResourceVersion() {
				t.Error("a replace by what was read has changed the object")
			}
		})
	}
}

// Missing fields get their defaults in the stored object, where they can be read.
func TestDefaults(t *testing.T) {
	ctx := testContext(t)
	namespace := newNamespace(ctx, t)
	env := create(ctx, t, client.Resource(envs).Namespace(namespace), parse(t, `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: bare}
spec:
  templateRef: {name: t}
  autoscaling:
    groups: [{name: default}]
  clusters:
  - clusterID: east
    members:
    - name: sized
      spec: {replicas: 1, runtimes: [{name: e2b}]}
      config: {priority: 1}
    - name: bare
`))
	const (
		group = "/spec/autoscaling/groups/0"
		sized = "/spec/clusters/0/members/0"
		bare  = "/spec/clusters/0/members/1"
	)
	check(t, env, map[string]any{
		"/spec/mode":           "WarmPool",
		"/spec/templateRef":    map[string]any{"name": "t"},
		group + "/enabled":     false,
		group + "/minReplicas": 0,
		group + "/maxReplicas": nil,
		group + "/scaleUpPolicy": map[string]any{
			"mode": "Default", "cooldownSeconds": int64(30), "idleThresholdSeconds": int64(30),
			"idleZeroQuietWindowSeconds": int64(300), "saturationCooldownSeconds": int64(60),
		},
		group + "/scaleDownPolicy": map[string]any{
			"idleTimeoutSeconds": int64(300), "stabilizationSeconds": int64(60), "protectionWindowSeconds": int64(10),
		},
		sized + "/config/scalingGroup":      "default",
		sized + "/config/minReplicas":       nil,
		sized + "/spec/runtimes/0/protocol": "TCP",
		// Defaults go no deeper than what was given: without a config there is no scaling group.
		bare + "/config": nil,
		bare + "/spec":   nil,
	})

	pool := create(ctx, t, client.Resource(pools).Namespace(namespace), parse(t, `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxPool
metadata: {name: bare}
spec: {replicas: 0}
`))
	check(t, pool, map[string]any{
		"/spec": map[string]any{"replicas": int64(0), "podCreationImagePolicy": "IdleImage"},
	})
}

// zeros are values that mean "off" or "none" and differ from the default.
var zeros = map[string]any{
	"/spec/autoscaling/groups/0/scaleUpPolicy/cooldownSeconds":            0,
	"/spec/autoscaling/groups/0/scaleUpPolicy/idleThresholdSeconds":       0,
	"/spec/autoscaling/groups/0/scaleUpPolicy/idleZeroQuietWindowSeconds": 0,
	"/spec/autoscaling/groups/0/scaleUpPolicy/saturationCooldownSeconds":  0,
	"/spec/autoscaling/groups/0/scaleDownPolicy/idleTimeoutSeconds":       0,
	"/spec/autoscaling/groups/0/scaleDownPolicy/stabilizationSeconds":     0,
	"/spec/autoscaling/groups/0/scaleDownPolicy/protectionWindowSeconds":  0,
	"/spec/clusters/0/members/0/config/scalingGroup":                      "small",
	"/spec/clusters/0/members/1/config/scalingGroup":                      "",
	"/spec/clusters/0/members/1/config/minReplicas":                       0,
	"/spec/clusters/0/members/1/config/maxReplicas":                       0,
}

// zeroEnv is the Env that has zeros, as an apply configuration.
func zeroEnv(name, namespace string) *ac.SandboxEnvApplyConfiguration {
	return ac.SandboxEnv(name, namespace).WithSpec(ac.SandboxEnvSpec().
		WithTemplateRef(ac.SandboxEnvTemplateRef().WithName("t")).
		WithMode(v1alpha1.SandboxEnvModeWarmPool).
		WithAutoscaling(ac.EnvAutoscalingSpec().WithGroups(ac.EnvAutoscalingGroup().WithName("small").
			WithScaleUpPolicy(ac.PoolScaleUpPolicy().WithCooldownSeconds(0).WithIdleThresholdSeconds(0).
				WithIdleZeroQuietWindowSeconds(0).WithSaturationCooldownSeconds(0)).
			WithScaleDownPolicy(ac.PoolScaleDownPolicy().WithIdleTimeoutSeconds(0).WithStabilizationSeconds(0).
				WithProtectionWindowSeconds(0)))).
		WithClusters(ac.EnvClusterSpec().WithClusterID("east").WithMembers(
			ac.EnvClusterMember().WithName("a").WithConfig(ac.EnvClusterMemberConfig().WithScalingGroup("small")),
			ac.EnvClusterMember().WithName("b").WithConfig(ac.EnvClusterMemberConfig().WithScalingGroup("").
				WithMinReplicas(0).WithMaxReplicas(0)),
		)))
}

// A zero that means "off" survives every kind of write that Atoll and its users make.
func TestZerosSurvive(t *testing.T) {
	ctx := testContext(t)
	namespace := newNamespace(ctx, t)
	r := client.Resource(envs).Namespace(namespace)

	check(t, apply(ctx, t, r, "user", "zero", zeroEnv("zero", namespace)), zeros)
	// Again, by another manager, which now owns the fields as well.
	check(t, apply(ctx, t, r, "other", "zero", zeroEnv("zero", namespace)), zeros)

	got := mustPatch(ctx, t, r, "zero", `
- {op: add, path: /spec/clusters/0/members/0/spec, value: {replicas: 0}}
- {op: replace, path: /spec/clusters/0/members/0/spec/replicas, value: 5}`)
	check(t, got, zeros)

	got, err := r.Update(ctx, got, metav1.UpdateOptions{})
	must.Succeed(t, err)
	check(t, got, zeros)

	_, err = east.Kubectl(ctx, "-n", namespace, "label", "sbe", "zero", "touched=yes")
	must.Succeed(t, err)
	got, err = r.Get(ctx, "zero", metav1.GetOptions{})
	must.Succeed(t, err)
	check(t, got, zeros)

	pool := create(ctx, t, client.Resource(pools).Namespace(namespace), parse(t, `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxPool
metadata: {name: zero}
spec: {replicas: 0, defaultIdleTimeout: 0s}
`))
	check(t, pool, map[string]any{"/spec/replicas": 0, "/spec/defaultIdleTimeout": "0s"})
}

// Why no Go struct is ever the body of an Env write. If this test fails one day, the rule can go.
func TestGoStructLosesZeros(t *testing.T) {
	ctx := testContext(t)
	namespace := newNamespace(ctx, t)
	r := client.Resource(envs).Namespace(namespace)
	stored := apply(ctx, t, r, "user", "zero", zeroEnv("zero", namespace))

	var typed v1alpha1.SandboxEnv
	must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, &typed))
	raw, err := json.Marshal(&typed)
	must.Succeed(t, err)
	body := &unstructured.Unstructured{}
	must.Succeed(t, body.UnmarshalJSON(raw))
	body.SetAPIVersion(v1alpha1.GroupVersion.String())
	body.SetKind("SandboxEnv")
	got, err := r.Update(ctx, body, metav1.UpdateOptions{})
	must.Succeed(t, err)
	check(t, got, map[string]any{
		"/spec/autoscaling/groups/0/scaleUpPolicy/idleThresholdSeconds": 30,
		"/spec/clusters/0/members/1/config/scalingGroup":                "default",
	})
}

// Unknown fields are kept where there is no schema, and nowhere else.
func TestUnknownFields(t *testing.T) {
	ctx := testContext(t)
	namespace := newNamespace(ctx, t)
	body := parse(t, `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxPool
metadata: {name: unknown}
spec:
  replicas: 1
  bogus: 1
  template:
    bogus: 2
    spec:
      bogus: {a: [1, {b: null}]}
      containers: [{name: main, image: i, bogus: 3}]
  runtimes:
  - {name: e2b, bogus: 4, config: {bogus: {c: [5]}}}
`)
	got, err := client.Resource(pools).Namespace(namespace).Create(ctx, body, metav1.CreateOptions{
		FieldValidation: metav1.FieldValidationIgnore,
	})
	must.Succeed(t, err)
	want, _ := at(t, body, "/spec/template")
	config, _ := at(t, body, "/spec/runtimes/0/config")
	check(t, got, map[string]any{
		"/spec/template":          want,
		"/spec/runtimes/0/config": config,
		"/spec/bogus":             nil,
		"/spec/runtimes/0/bogus":  nil,
	})
}
