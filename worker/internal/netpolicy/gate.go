// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/pool"
)

var _ pool.Gater = (*Reconciler)(nil)

// Of implements pool.Gater. A pool's first Pods wait for its policy, so that none of them runs without it.
func (r *Reconciler) Of(ctx context.Context, p *v1alpha1.SandboxPool) (pool.Gate, error) {
	if p.DeletionTimestamp != nil {
		return pool.Gate{}, nil
	}
	policy := &networkingv1.NetworkPolicy{}
	err := r.client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: NameOf(p.Name)}, policy)
	if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(policy, p) { // that of an earlier pool is about to be deleted
		pending := patch.False(v1alpha1.SandboxPoolConditionNetworkPolicyApplied, v1alpha1.ReasonNetworkPolicyPending,
			"the NetworkPolicy is being created; the first Pods wait for it")
		return pool.Gate{Awaits: true, Conditions: []patch.Condition{pending}}, nil
	}
	if err != nil {
		return pool.Gate{}, fmt.Errorf("reading the NetworkPolicy: %w", err)
	}
	w, err := r.gather(ctx, p)
	if err != nil {
		return pool.Gate{}, err
	}
	return pool.Gate{Conditions: []patch.Condition{w.condition}}, nil
}

func document(from any, into *unstructured.Unstructured) error {
	kind := into.GroupVersionKind()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		return fmt.Errorf("encoding a policy: %w", err)
	}
	into.Object = object
	into.SetGroupVersionKind(kind)
	return nil
}
