// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

const restoredPage = 500

// +kubebuilder:rbac:groups="",resources=pods,verbs=list;delete

// replaceIdle deletes all idle Pods, which their pools then replace. After etcd was set back, a Pod that looks idle may
// have been handed out in the time that was lost (I1). One that is claimed meanwhile stays: the resourceVersion differs.
func (a *Agent) replaceIdle(ctx context.Context) error {
	idle := client.MatchingLabels{
		v1alpha1.ManagedByLabelKey:    v1alpha1.ManagedBySandboxAPIServer,
		v1alpha1.SandboxPhaseLabelKey: v1alpha1.SandboxPhaseIdle,
	}
	count, next := 0, ""
	for {
		pods := &corev1.PodList{}
		if err := a.reader.List(ctx, pods, idle, client.Limit(restoredPage), client.Continue(next)); err != nil {
			return fmt.Errorf("listing idle pods after etcd was restored: %w", err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.DeletionTimestamp != nil {
				continue
			}
			only := client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
			err := a.client.Delete(ctx, pod, only)
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return fmt.Errorf("deleting idle pod %s/%s after etcd was restored: %w", pod.Namespace, pod.Name, err)
			}
			count++
		}
		if next = pods.Continue; next == "" {
			a.opts.Log.Info("etcd was restored to an earlier state, idle pods are being replaced", "count", count)
			return nil
		}
	}
}
