// SPDX-License-Identifier: Apache-2.0

package sandboxcache

import (
	"reflect"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"

	"navix.sh/atoll/api/v1alpha1"
)

// maxTemplates is how many Pod specs and resources are remembered for sharing.
const maxTemplates = 4096

// templates lets the Envs or pools of a cache share equal parts: many are made from one template, and most have one of a few sizes. Cached
// objects are never modified, so a write needs no copies.
type templates struct {
	specs     *lru.Cache // of corev1.PodSpec, by their main container
	resources *lru.Cache // of corev1.ResourceList, by their text
}

// templatesAfter returns strip followed by the sharing of equal parts, for the Envs or pools of one cache.
func templatesAfter(strip func(any) (any, error)) func(any) (any, error) {
	t := &templates{specs: lru.New(maxTemplates), resources: lru.New(maxTemplates)}
	return func(object any) (any, error) {
		switch o := object.(type) {
		case *v1alpha1.SandboxEnv:
			t.shareEnv(o)
		case *v1alpha1.SandboxPool:
			t.shareSpec(&o.Spec.Template.Spec)
			shareConditions(o.Status.Conditions)
		}
		return strip(object)
	}
}

func (t *templates) shareEnv(env *v1alpha1.SandboxEnv) {
	for i := range env.Spec.Clusters {
		members := env.Spec.Clusters[i].Members
		for j := range members {
			t.shareSpec(&members[j].Spec.Template.Spec)
			t.shareResources(members[j].Config.InlineResources)
		}
	}
	for i := range env.Status.Snapshots {
		t.shareSpec(&env.Status.Snapshots[i].Spec.Template.Spec)
	}
	for i := range env.Status.Clusters {
		members := env.Status.Clusters[i].ObservedMembers
		for j := range members {
			t.shareResources(members[j].EffectiveResources)
		}
	}
	shareConditions(env.Status.Conditions)
}

// shareSpec replaces a Pod spec by another object's if they are equal in every digit.
func (t *templates) shareSpec(spec *corev1.PodSpec) {
	if len(spec.Containers) == 0 {
		return
	}
	key := struct{ name, image, resources string }{
		spec.Containers[0].Name, spec.Containers[0].Image, text(spec.Containers[0].Resources.Requests),
	}
	if found, ok := t.specs.Get(key); ok {
		if like, ok := found.(corev1.PodSpec); ok && reflect.DeepEqual(spec, &like) {
			*spec = like
			return
		}
	}
	t.specs.Add(key, *spec)
}

func (t *templates) shareResources(r *corev1.ResourceRequirements) {
	if r == nil {
		return
	}
	for _, list := range []*corev1.ResourceList{&r.Requests, &r.Limits} {
		if len(*list) == 0 {
			continue
		}
		key := text(*list)
		if like, ok := t.resources.Get(key); ok {
			*list, _ = like.(corev1.ResourceList)
			continue
		}
		t.resources.Add(key, *list)
	}
}

// text returns a text that identifies the content of a list.
func text(list corev1.ResourceList) string {
	all := make([]string, 0, len(list))
	for name, quantity := range list {
		all = append(all, string(name)+"="+quantity.String())
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// shareConditions replaces the fixed strings of conditions by one copy.
func shareConditions(all []metav1.Condition) {
	for i := range all {
		c := &all[i]
		canonical(&c.Type, &c.Reason)
		c.Status = unique.Make(c.Status).Value()
	}
}
