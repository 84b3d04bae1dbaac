// SPDX-License-Identifier: Apache-2.0

package sandboxcache

import (
	"maps"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandbox"
)

// maxShared is the number of pools of which a Pod is remembered for sharing.
const maxShared = 16_384

// sharing lets the Pods of a pool share equal parts: a pool's idle Pods differ only in names, node, addresses and times. Cached objects are
// never modified, so a write needs no copies.
type sharing struct {
	pools *lru.Cache // of *corev1.Pod, idle ones without a node, by pool
}

func newSharing() *sharing { return &sharing{pools: lru.New(maxShared)} }

// share replaces the parts of a stripped Pod that equal those of another Pod of its pool.
func (s *sharing) share(pod *corev1.Pod) {
	canonical(&pod.Namespace, &pod.Spec.NodeName, &pod.Status.HostIP)
	pod.Status.Phase = unique.Make(pod.Status.Phase).Value()
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		c.Type, c.Status = unique.Make(c.Type).Value(), unique.Make(c.Status).Value()
		canonical(&c.Reason, &c.Message)
	}
	for i := range pod.Status.ContainerStatuses {
		cs := &pod.Status.ContainerStatuses[i]
		canonical(&cs.Name, &cs.Image, &cs.ImageID)
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: sandbox.PoolName(pod)}
	var like *corev1.Pod
	if found, ok := s.pools.Get(key); ok {
		like, _ = found.(*corev1.Pod)
	}
	if like == nil {
		like = &corev1.Pod{}
	}
	node := pod.Spec.NodeName
	pod.Spec.NodeName = ""
	same := apiequality.Semantic.DeepEqual(&pod.Spec, &like.Spec)
	if same {
		pod.Spec = like.Spec
	}
	same = shareMap(&pod.Labels, like.Labels) && same
	shareMap(&pod.Annotations, like.Annotations) // including the time since when it is idle
	if apiequality.Semantic.DeepEqual(pod.OwnerReferences, like.OwnerReferences) {
		pod.OwnerReferences = like.OwnerReferences
	} else {
		same = false
	}
	if slices.Equal(pod.Finalizers, like.Finalizers) {
		pod.Finalizers = like.Finalizers
	}
	if !same && pod.Labels[v1alpha1.SandboxPhaseLabelKey] == v1alpha1.SandboxPhaseIdle {
		remembered := &corev1.Pod{Spec: pod.Spec}
		remembered.Labels, remembered.Annotations = pod.Labels, pod.Annotations
		remembered.OwnerReferences, remembered.Finalizers = pod.OwnerReferences, pod.Finalizers
		s.pools.Add(key, remembered)
	}
	pod.Spec.NodeName = node
}

// canonical replaces equal strings by one copy.
func canonical(all ...*string) {
	for _, s := range all {
		*s = unique.Make(*s).Value()
	}
}

// shareMap replaces m by the other map if they are equal, and returns true. Otherwise it shares the keys and the equal values.
func shareMap(m *map[string]string, other map[string]string) (same bool) {
	if len(*m) == 0 {
		return false
	}
	if maps.Equal(*m, other) {
		*m = other
		return true
	}
	shared := make(map[string]string, len(*m))
	for key, value := range *m {
		if o, ok := other[key]; ok && o == value {
			value = o
		}
		shared[unique.Make(key).Value()] = value
	}
	*m = shared
	return false
}
