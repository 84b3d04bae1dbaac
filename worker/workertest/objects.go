// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

// kind is one of the server's kinds.
type kind struct {
	gvk        schema.GroupVersionKind
	resource   string
	namespaced bool
	empty      func() client.Object
	list       func() client.ObjectList
}

var kinds = []*kind{
	{corev1.SchemeGroupVersion.WithKind("Pod"), "pods", true,
		func() client.Object { return &corev1.Pod{} }, func() client.ObjectList { return &corev1.PodList{} }},
	{corev1.SchemeGroupVersion.WithKind("Node"), "nodes", false,
		func() client.Object { return &corev1.Node{} }, func() client.ObjectList { return &corev1.NodeList{} }},
	{corev1.SchemeGroupVersion.WithKind("Namespace"), "namespaces", false,
		func() client.Object { return &corev1.Namespace{} }, func() client.ObjectList { return &corev1.NamespaceList{} }},
	{corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps", true,
		func() client.Object { return &corev1.ConfigMap{} }, func() client.ObjectList { return &corev1.ConfigMapList{} }},
	{coordinationv1.SchemeGroupVersion.WithKind("Lease"), "leases", true,
		func() client.Object { return &coordinationv1.Lease{} }, func() client.ObjectList { return &coordinationv1.LeaseList{} }},
	{v1alpha1.GroupVersion.WithKind("SandboxEnv"), "sandboxenvs", true,
		func() client.Object { return &v1alpha1.SandboxEnv{} }, func() client.ObjectList { return &v1alpha1.SandboxEnvList{} }},
	{v1alpha1.GroupVersion.WithKind("SandboxPool"), "sandboxpools", true,
		func() client.Object { return &v1alpha1.SandboxPool{} }, func() client.ObjectList { return &v1alpha1.SandboxPoolList{} }},
}

func kindOf(object runtime.Object) *kind {
	gvks, _, err := scheme().ObjectKinds(object)
	if err != nil || len(gvks) == 0 {
		return nil
	}
	for _, k := range kinds {
		if k.gvk == gvks[0] {
			return k
		}
	}
	return nil
}

// scheme has every kind. It is built once for all clusters.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			return runtime.NewScheme() // every use of it fails and shows why
		}
	}
	return s
})

var mapper = sync.OnceValue(func() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, k := range kinds {
		scope := meta.RESTScopeRoot
		if k.namespaced {
			scope = meta.RESTScopeNamespace
		}
		m.AddSpecific(k.gvk, k.gvk.GroupVersion().WithResource(k.resource), k.gvk.GroupVersion().WithResource(k.resource), scope)
	}
	return m
})
