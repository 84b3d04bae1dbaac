// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

// page bounds the response of a list.
const page = 500

// cleanup deletes once the policies from when they were on, because switching them off must restore the network.
type cleanup struct {
	client client.Client
	live   client.Reader
	log    logr.Logger
}

// AddCleanup adds a runnable that deletes all policies, for Mode Off.
func AddCleanup(mgr ctrl.Manager, log logr.Logger) error {
	if err := mgr.Add(&cleanup{mgr.GetClient(), mgr.GetAPIReader(), log}); err != nil {
		return fmt.Errorf("adding the deletion of network policies: %w", err)
	}
	return nil
}

// Start runs on the leader. A failure is logged, and retried by the next leader.
func (c *cleanup) Start(ctx context.Context) error {
	for _, kind := range []schema.GroupVersionKind{policyKind, ciliumKind} {
		n, err := c.remove(ctx, kind)
		switch {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err), apierrors.IsForbidden(err) && kind == ciliumKind:
		case err != nil && ctx.Err() == nil:
			c.log.Error(err, "Cannot delete the network policies of sandboxes, which are off", "kind", kind.Kind)
		case n > 0:
			c.log.Info("Network policies of sandboxes are off, and deleted", "kind", kind.Kind, "count", n)
		}
	}
	return nil
}

func (c *cleanup) remove(ctx context.Context, kind schema.GroupVersionKind) (n int, err error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	for next := ""; ; next = list.GetContinue() {
		err := c.live.List(ctx, list, client.MatchingLabels{v1alpha1.ManagedByLabelKey: v1alpha1.ManagedBySandboxAPIServer},
			client.Limit(page), client.Continue(next))
		if err != nil {
			return n, fmt.Errorf("listing: %w", err)
		}
		for i := range list.Items {
			if err := c.client.Delete(ctx, &list.Items[i]); client.IgnoreNotFound(err) != nil {
				return n, fmt.Errorf("deleting %s/%s: %w", list.Items[i].GetNamespace(), list.Items[i].GetName(), err)
			}
			n++
		}
		if list.GetContinue() == "" {
			return n, nil
		}
	}
}
