// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"context"
	"fmt"
	"strings"

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

// cleanup deletes once the policies that an earlier mode made and that the current mode does not have; because they would go on opening and
// closing the network of sandboxes.
type cleanup struct {
	client client.Client
	live   client.Reader
	kinds  []schema.GroupVersionKind
	left   func(context.Context, leftover) // is called with what could not be deleted; may be nil
	log    logr.Logger
}

// leftover is what a cleanup could not delete.
type leftover struct {
	known  bool   // there are such policies; false: there may be
	remedy string // what a person does about it
}

// AddCleanup adds a runnable that deletes all policies, for Mode Off.
func AddCleanup(mgr ctrl.Manager, log logr.Logger) error {
	return addCleanup(mgr, &cleanup{kinds: obsolete(Off), log: log})
}

// obsolete returns the kinds of policies that a mode does not have.
func obsolete(m Mode) []schema.GroupVersionKind {
	switch m {
	case Cilium:
		return nil
	case Kubernetes:
		return []schema.GroupVersionKind{ciliumKind}
	default:
		return []schema.GroupVersionKind{policyKind, ciliumKind}
	}
}

func addCleanup(mgr ctrl.Manager, c *cleanup) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	if err := mgr.Add(c); err != nil {
		return fmt.Errorf("adding the deletion of network policies: %w", err)
	}
	return nil
}

// Start runs on the leader. A failure is logged, and retried by the next leader.
func (c *cleanup) Start(ctx context.Context) error {
	for _, kind := range c.kinds {
		found, deleted, err := c.remove(ctx, kind)
		if deleted > 0 {
			c.log.Info("Network policies of sandboxes are deleted, which this mode does not have", "kind", kind.Kind, "count", deleted)
		}
		if err == nil || ctx.Err() != nil || meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		left := leftover{known: found > deleted, remedy: remedy(kind)}
		if apierrors.IsForbidden(err) && kind == ciliumKind && !left.known { // as in each cluster with Cilium where the mode is another
			c.log.Info("The worker may not look for network policies of sandboxes that the mode cilium made; if there are any, they stay",
				"kind", kind.Kind, "remedy", left.remedy, "error", err.Error())
		} else {
			c.log.Error(err, "Cannot delete network policies of sandboxes, which this mode does not have; they stay", "kind", kind.Kind,
				"remedy", left.remedy)
		}
		if c.left != nil {
			c.left(ctx, left)
		}
	}
	return nil
}

// remedy returns the command that deletes the policies of a kind.
func remedy(kind schema.GroupVersionKind) string {
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return fmt.Sprintf("kubectl delete %s --all-namespaces -l %s=%s", resource.GroupResource(), v1alpha1.ManagedByLabelKey,
		v1alpha1.ManagedBySandboxAPIServer)
}

// remove deletes the policies of a kind. Those of other names are not from this package.
func (c *cleanup) remove(ctx context.Context, kind schema.GroupVersionKind) (found, deleted int, err error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	for next := ""; ; next = list.GetContinue() {
		err := c.live.List(ctx, list, client.MatchingLabels{v1alpha1.ManagedByLabelKey: v1alpha1.ManagedBySandboxAPIServer},
			client.Limit(page), client.Continue(next))
		if err != nil {
			return found, deleted, fmt.Errorf("listing: %w", err)
		}
		for i := range list.Items {
			name := list.Items[i].GetName()
			if !strings.HasPrefix(name, NameOf("")) && !strings.HasPrefix(name, OpeningNameOf("")) {
				continue
			}
			found++
			if err := c.client.Delete(ctx, &list.Items[i]); client.IgnoreNotFound(err) != nil {
				return found, deleted, fmt.Errorf("deleting %s/%s: %w", list.Items[i].GetNamespace(), name, err)
			}
			deleted++
		}
		if list.GetContinue() == "" {
			return found, deleted, nil
		}
	}
}
