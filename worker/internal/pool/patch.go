// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandbox"
)

// op is one operation of a JSON patch. The patches here are rare next to those
// of package sandbox, so they are encoded the plain way.
type op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func encode(ops ...any) ([]byte, error) {
	data, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encoding patch: %w", err)
	}
	return data, nil
}

// asSeen pins a patch to the Pod exactly as the cache has it.
func asSeen(pod *corev1.Pod) []any {
	return []any{
		op{"test", "/metadata/uid", pod.UID},
		op{"test", "/metadata/resourceVersion", pod.ResourceVersion},
	}
}

// protectPatch adds what a Pod of the pool must have and this one lacks: the
// protection finalizer, and the pool as its owner.
func protectPatch(pod *corev1.Pod, pool *v1alpha1.SandboxPool) ([]byte, error) {
	ops := asSeen(pod)
	if !hasPodFinalizer(pod) {
		ops = append(ops, op{"add", "/metadata/finalizers",
			append(slices.Clone(pod.Finalizers), v1alpha1.SandboxProtectionFinalizer)})
	}
	if orphaned(pod) {
		owner := *metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("SandboxPool"))
		ops = append(ops, op{"add", "/metadata/ownerReferences", append(slices.Clone(pod.OwnerReferences), owner)})
	}
	return encode(ops...)
}

// relabelPatch writes back the labels that were edited by hand. It is pinned to the Pod as it was seen: a claim or an end
// writes its own.
func relabelPatch(pod *corev1.Pod) ([]byte, error) {
	labels := maps.Clone(pod.Labels)
	maps.Copy(labels, sandbox.Mislabelled(pod))
	return encode(append(asSeen(pod), op{"replace", "/metadata/labels", labels})...)
}

// buryPatch takes the protection finalizer off a Pod that is being deleted. The
// position is tested, because others may take theirs off at the same time.
func buryPatch(pod *corev1.Pod) ([]byte, error) {
	path := fmt.Sprintf("/metadata/finalizers/%d", slices.Index(pod.Finalizers, v1alpha1.SandboxProtectionFinalizer))
	return encode(
		op{"test", "/metadata/uid", pod.UID},
		op{"test", path, v1alpha1.SandboxProtectionFinalizer},
		op{"remove", path, nil},
	)
}
