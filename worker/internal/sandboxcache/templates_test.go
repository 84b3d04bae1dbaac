// SPDX-License-Identifier: Apache-2.0

package sandboxcache

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

// envJSON is an Env with one member, as an API server sends it.
func envJSON(name, image, memory string) string {
	const resources = `{"requests":{"cpu":"1","memory":%q}}`
	size := fmt.Sprintf(resources, memory)
	return fmt.Sprintf(`{"metadata":{"namespace":"default","name":%q},
		"spec":{"templateRef":{"name":"python"},"clusters":[{"clusterID":"east","members":[
			{"name":"m","spec":{"replicas":3},"config":{"inlineResources":%s}}]}]},
		"status":{"snapshots":[{"clusterID":"east","name":"m","spec":{"replicas":3,"template":{"spec":{"containers":[
			{"name":"main","image":%q,"resources":%s}]}}}}],
			"clusters":[{"clusterID":"east","observedMembers":[{"name":"m","effectiveResources":%s}]}],
			"conditions":[{"type":"Ready","status":"True","reason":"AllReady","message":"all Pods are ready"}]}}`,
		name, size, image, size, size)
}

// Envs of one template share its Pod spec, and those of one size their resources. No Env or pool looks otherwise than it does alone.
func TestEnvsAndPoolsShareWhatIsEqual(t *testing.T) {
	transform := Transform(&v1alpha1.SandboxEnv{})
	cached := func(name, image, memory string) *v1alpha1.SandboxEnv {
		t.Helper()
		var env, alone v1alpha1.SandboxEnv
		must.Succeed(t, json.Unmarshal([]byte(envJSON(name, image, memory)), &env))
		must.Succeed(t, json.Unmarshal([]byte(envJSON(name, image, memory)), &alone))
		_, err := stripReplicated(&alone)
		must.Succeed(t, err)
		got, err := transform(&env)
		if err != nil || !apiequality.Semantic.DeepEqual(got, &alone) {
			t.Errorf("%s is cached as %+v, want %+v: %v", name, got, &alone, err)
		}
		return &env
	}
	a, b := cached("a", "x:1", "1Gi"), cached("b", "x:1", "1Gi")
	image, size, digits := cached("image", "x:2", "1Gi"), cached("size", "x:1", "2Gi"), cached("digits", "x:1", "1024Mi")
	spec := func(env *v1alpha1.SandboxEnv) *corev1.Container {
		return &env.Status.Snapshots[0].Spec.Template.Spec.Containers[0]
	}
	sameList := func(x, y corev1.ResourceList) bool {
		return reflect.ValueOf(x).Pointer() == reflect.ValueOf(y).Pointer()
	}
	inline := func(env *v1alpha1.SandboxEnv) corev1.ResourceList {
		return env.Spec.Clusters[0].Members[0].Config.InlineResources.Requests
	}
	if spec(a) != spec(b) || &a.Spec.Clusters[0].Members[0].Spec.Template.Spec.Containers[0] != spec(a) {
		t.Error("two Envs of a template have two Pod specs")
	}
	if spec(a) == spec(image) || spec(a) == spec(size) {
		t.Error("Envs of different templates have one Pod spec")
	}
	if !sameList(inline(a), inline(image)) || !sameList(inline(a), a.Status.Clusters[0].ObservedMembers[0].EffectiveResources.Requests) {
		t.Error("Envs of one size have two lists of resources")
	}
	if !sameList(inline(a), inline(digits)) {
		t.Error("a size in other digits has a list of its own")
	}
	if sameList(inline(a), inline(size)) {
		t.Error("Envs of two sizes have one list of resources")
	}

	transform = Transform(&v1alpha1.SandboxPool{})
	pool := func(replicas int32) *v1alpha1.SandboxPool {
		p := &v1alpha1.SandboxPool{Spec: v1alpha1.SandboxPoolSpec{Replicas: replicas}}
		p.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "x:1"}}
		_, err := transform(p)
		must.Succeed(t, err)
		return p
	}
	one, other := pool(1), pool(2)
	if &one.Spec.Template.Spec.Containers[0] != &other.Spec.Template.Spec.Containers[0] || one.Spec.Replicas == other.Spec.Replicas {
		t.Error("pools of a template share too little or too much")
	}
}
