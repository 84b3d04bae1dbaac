// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
)

func TestDecide(t *testing.T) {
	now := metav1.Now()
	former := func(change ...func(*v1alpha1.SandboxPool)) *v1alpha1.SandboxPool {
		p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{
			Name: "p", UID: "pool", Labels: map[string]string{v1alpha1.ManagedByLabelKey: v1alpha1.ManagedBySandboxAPIServer},
		}}
		p.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "i"}}
		for _, c := range change {
			c(p)
		}
		return p
	}
	env := func(madeFor types.UID) *v1alpha1.SandboxEnv {
		return &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{
			Name: "p", UID: "env", Annotations: map[string]string{v1alpha1.AdoptedPoolAnnotationKey: string(madeFor)},
		}}
	}
	going := env("pool")
	going.DeletionTimestamp = &now
	byHand := func(p *v1alpha1.SandboxPool) { p.Labels = nil }
	owned := func(apiVersion string, controller *bool) func(*v1alpha1.SandboxPool) {
		return func(p *v1alpha1.SandboxPool) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: "SandboxEnv", Name: "p", UID: "env", Controller: controller}}
		}
	}
	for _, tt := range []struct {
		name   string
		mode   Mode
		pool   *v1alpha1.SandboxPool
		env    *v1alpha1.SandboxEnv
		verb   verb
		reason string
	}{
		{"off", Off, former(), nil, verbNone, reasonNotAsked},
		{"the former system's", ByLabel, former(), nil, verbCreate, reasonEnvMade},
		{"made by hand, by label", ByLabel, former(byHand), nil, verbNone, reasonNotAsked},
		{"made by hand, all", All, former(byHand), nil, verbCreate, reasonEnvMade},
		{"the Env is there, made for it", ByLabel, former(), env("pool"), verbOwn, reasonPoolAdopted},
		{"the Env was made for the pool before", ByLabel, former(), env("another"), verbRefuse, reasonEnvOfOther},
		{"the Env is of another owner", All, former(), &v1alpha1.SandboxEnv{}, verbRefuse, reasonEnvOfOther},
		{"the Env is going", ByLabel, former(), going, verbWait, reasonEnvTerminates},
		{"adopted", ByLabel, former(owned("agents.navix.sh/v1alpha1", nil)), env("pool"), verbNone, reasonOwned},
		{"a member", All, former(owned("agents.navix.sh/v1alpha1", new(true))), nil, verbNone, reasonOwned},
		{"a member, of a later version of the API", All, former(owned("agents.navix.sh/v1", nil)), nil, verbNone, reasonOwned},
		{"left behind by its Env", All, former(func(p *v1alpha1.SandboxPool) { p.Labels[v1alpha1.LabelEnv] = "p" }), nil, verbNone,
			reasonWasMember},
		{"going", All, former(func(p *v1alpha1.SandboxPool) { p.DeletionTimestamp = &now }), nil, verbNone, reasonTerminating},
		{"waiting for its template", All, former(func(p *v1alpha1.SandboxPool) { p.Spec.Template.Spec.Containers = nil }), nil, verbNone,
			reasonBare},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := decide(tt.mode, tt.pool, tt.env); d.verb != tt.verb || d.reason != tt.reason {
				t.Errorf("got %s/%s, want %s/%s", d.verb, d.reason, tt.verb, tt.reason)
			}
		})
	}
}

func TestEnvFor(t *testing.T) {
	named := func(annotation, spec string) func(*v1alpha1.SandboxPool) {
		return func(p *v1alpha1.SandboxPool) {
			p.Annotations, p.Spec.TemplateName = map[string]string{v1alpha1.SandboxPoolTemplateNameAnnotationKey: annotation}, spec
		}
	}
	sized := func(p *v1alpha1.SandboxPool) {
		p.Spec.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
		}}}
	}
	for name, tt := range map[string]struct {
		change              func(*v1alpha1.SandboxPool)
		template, resources string
	}{
		"nothing said": {func(*v1alpha1.SandboxPool) {}, "p", "map[scalingGroup:]"},
		"no resources": {func(p *v1alpha1.SandboxPool) { p.Spec.Template.Spec.Containers = []corev1.Container{{}} }, "p",
			"map[scalingGroup:]"},
		"resources":                 {sized, "p", "map[inlineResources:map[limits:map[cpu:2]] scalingGroup:]"},
		"a template":                {named("", "t"), "t", "map[scalingGroup:]"},
		"a template, by annotation": {named("a", "t"), "a", "map[scalingGroup:]"},
	} {
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "pool"}}
		tt.change(pool)
		env, err := envFor("east", pool, map[string]any{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		spec := env["spec"].(map[string]any)
		member := spec["clusters"].([]any)[0].(map[string]any)["members"].([]any)[0].(map[string]any)
		if got := fmt.Sprint(spec["templateRef"], member["config"]); got != fmt.Sprintf("map[name:%s] %s", tt.template, tt.resources) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestParseMode(t *testing.T) {
	for _, mode := range []Mode{Off, ByLabel, All} {
		if got, err := ParseMode(string(mode)); err != nil || got != mode {
			t.Errorf("%s: got %s, %v", mode, got, err)
		}
	}
	if _, err := ParseMode("some"); err == nil {
		t.Error("some was taken")
	}
}
