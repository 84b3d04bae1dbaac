// SPDX-License-Identifier: Apache-2.0

package sandboxcache

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

// ByObject returns the cache's selection and transformation of objects by kind. Kinds that are not listed are cached whole.
func ByObject() map[client.Object]cache.ByObject {
	template := &unstructured.Unstructured{}
	template.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SandboxTemplate"))
	out := map[client.Object]cache.ByObject{}
	for _, object := range []client.Object{
		&corev1.Pod{}, &corev1.Node{}, &networkingv1.NetworkPolicy{}, &v1alpha1.SandboxEnv{}, &v1alpha1.SandboxPool{}, template,
	} {
		by := cache.ByObject{Transform: Transform(object)}
		if selector := Selector(object); !selector.Empty() {
			by.Label = selector
		}
		out[object] = by
	}
	// The only question about Secrets is whether a pull secret exists, so no other data is kept. They are not watched as metadata, because
	// when such a stream ends, controller-runtime leaks a goroutine that waits to send.
	out[&corev1.Secret{}] = cache.ByObject{
		Field:     fields.OneTermEqualSelector("type", string(corev1.SecretTypeDockerConfigJson)),
		Transform: stripSecret,
	}
	return out
}

// Selector selects the cached objects of a kind.
func Selector(object client.Object) labels.Selector {
	switch object.(type) {
	case *corev1.Pod, *networkingv1.NetworkPolicy:
		return labels.SelectorFromSet(ours)
	}
	return labels.Everything()
}

var ours = labels.Set{v1alpha1.ManagedByLabelKey: v1alpha1.ManagedBySandboxAPIServer}

// Transform returns the transformation of objects of a kind before they are cached, or nil.
func Transform(object client.Object) func(any) (any, error) {
	switch object.(type) {
	case *corev1.Pod:
		return sharedAfter(stripPod)
	case *corev1.Node:
		return stripNode
	case *v1alpha1.SandboxEnv, *v1alpha1.SandboxPool:
		return templatesAfter(stripReplicated)
	case *unstructured.Unstructured:
		return stripTemplate
	default:
		return nil
	}
}

// sharedAfter returns strip followed by the sharing of equal parts, for the Pods of one cache.
func sharedAfter(strip func(any) (any, error)) func(any) (any, error) {
	sharing := newSharing()
	return func(object any) (any, error) {
		object, err := strip(object)
		if pod, ok := object.(*corev1.Pod); ok && err == nil {
			sharing.share(pod)
		}
		return object, err
	}
}

// stripPod halves the size of a Pod. It keeps all fields that decide whether a Pod can be claimed or reset: volumes and mounts, security
// contexts, shared namespaces, restart policies, and every status of the main containers. It keeps the resources that records show. For the
// few Pods with a pause it keeps all resources, including the kubelet's report.
func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	paused := pod.Annotations[v1alpha1.SandboxPauseAnnotationKey] != ""
	pod.ManagedFields = nil
	spec := &pod.Spec
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			stripped := corev1.Container{
				Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy,
				SecurityContext: c.SecurityContext, VolumeMounts: c.VolumeMounts, Resources: shown(c.Resources),
			}
			if paused {
				stripped.Resources = c.Resources
			}
			*c = stripped
		}
	}
	spec.Affinity, spec.Tolerations, spec.TopologySpreadConstraints = nil, nil, nil
	spec.ImagePullSecrets, spec.HostAliases, spec.DNSConfig = nil, nil, nil
	pod.Status.PodIPs, pod.Status.HostIPs = nil, nil
	pod.Status.Conditions = relevantConditions(pod.Status.Conditions)
	if !paused {
		pod.Status.InitContainerStatuses = stuck(pod.Status.InitContainerStatuses)
		for i := range pod.Status.ContainerStatuses {
			cs := &pod.Status.ContainerStatuses[i]
			cs.Resources, cs.AllocatedResources = nil, nil
		}
	}
	return pod, nil
}

// relevantConditions returns the conditions, without the true ones that precede Ready, in an array of exact size.
func relevantConditions(all []corev1.PodCondition) (out []corev1.PodCondition) {
	for _, c := range all {
		switch c.Type {
		case corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReadyToStartContainers:
			if c.Status == corev1.ConditionTrue {
				continue
			}
		}
		out = append(out, c)
	}
	return out
}

// stuck returns the statuses of the init containers that keep a Pod from being ready, which show the reason.
func stuck(all []corev1.ContainerStatus) (out []corev1.ContainerStatus) {
	for _, cs := range all {
		if w, t := cs.State.Waiting, cs.State.Terminated; w != nil && w.Reason != "PodInitializing" || t != nil && t.ExitCode != 0 {
			out = append(out, corev1.ContainerStatus{Name: cs.Name, State: cs.State})
		}
	}
	return out
}

// shown returns the resources that a sandbox's record shows.
func shown(all corev1.ResourceRequirements) (out corev1.ResourceRequirements) {
	only := func(from corev1.ResourceList) (to corev1.ResourceList) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q, ok := from[name]; ok {
				if to == nil {
					to = corev1.ResourceList{}
				}
				to[name] = q
			}
		}
		return to
	}
	out.Requests, out.Limits = only(all.Requests), only(all.Limits)
	return out
}

// lastApplied is kubectl's copy of the object, which is never read here.
const lastApplied = corev1.LastAppliedConfigAnnotation

// stripReplicated removes the fields of Envs and pools that no decision reads, and fills in an Env's members. Of the managed fields it
// keeps those that show who wrote replicas, and the writers and times of the status, which reveal another controller. Writes to either
// start from a live read or are a difference.
func stripReplicated(object any) (any, error) {
	o, ok := object.(client.Object)
	if !ok {
		return object, nil
	}
	withoutLastApplied(o)
	entries := o.GetManagedFields()
	for i := range entries {
		if entries[i].Subresource == "status" {
			entries[i].FieldsV1 = nil
		} else {
			entries[i].FieldsV1 = readFields(entries[i].FieldsV1)
		}
	}
	o.SetManagedFields(entries)
	if env, ok := o.(*v1alpha1.SandboxEnv); ok {
		FillMembers(env)
	}
	return o, nil
}

// stripTemplate strips objects that are read as documents.
func stripTemplate(object any) (any, error) {
	if o, ok := object.(client.Object); ok {
		withoutLastApplied(o)
		o.SetManagedFields(nil)
	}
	return object, nil
}

func withoutLastApplied(o client.Object) {
	annotations := o.GetAnnotations()
	if _, ok := annotations[lastApplied]; ok {
		delete(annotations, lastApplied)
		o.SetAnnotations(annotations)
	}
}

// stripSecret removes the content of a Secret.
func stripSecret(object any) (any, error) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return object, nil
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID, ResourceVersion: secret.ResourceVersion,
		},
		Type: secret.Type,
	}, nil
}

// stripNode keeps the fields that decide whether a Node's Pods can serve. A Node lists every image that it has.
func stripNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields, node.Annotations = nil, nil
		node.Spec = corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable}
		node.Status = corev1.NodeStatus{Conditions: node.Status.Conditions}
	}
	return object, nil
}
