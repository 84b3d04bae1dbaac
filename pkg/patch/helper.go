// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

// PatchHelper keeps a copy of a pool as it was read, and writes the difference.
//
//nolint:revive // the name is the one that the reference gives it
type PatchHelper struct {
	client client.Client
	before *v1alpha1.SandboxPool
}

// NewPatchHelper copies the pool for the comparison. Call it before any change.
func NewPatchHelper(c client.Client, pool *v1alpha1.SandboxPool) *PatchHelper {
	return &PatchHelper{client: c, before: pool.DeepCopy()}
}

// HasChanges reports whether Patch would write.
func (h *PatchHelper) HasChanges(pool *v1alpha1.SandboxPool) bool {
	return h.mainChanged(pool) || len(statusChanges(&h.before.Status, &pool.Status)) > 0
}

// Patch writes metadata and spec if they changed, then status if it changed. After it returns nil, pool equals the object on the server,
// and the helper can write further changes.
func (h *PatchHelper) Patch(ctx context.Context, pool *v1alpha1.SandboxPool) error {
	// The response to the first patch overwrites pool with its status, so copy the wanted status before.
	wanted := pool.Status.DeepCopy()
	status := statusChanges(&h.before.Status, wanted)
	if h.mainChanged(pool) {
		if err := h.patchMain(ctx, pool); err != nil {
			return err
		}
	}
	if len(status) > 0 {
		body, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			return fmt.Errorf("encoding the status of pool %s: %w", client.ObjectKeyFromObject(pool), err)
		}
		if err := h.client.Status().Patch(ctx, pool, client.RawPatch(types.MergePatchType, body)); err != nil {
			pool.Status = *wanted
			return fmt.Errorf("patching the status of pool %s: %w", client.ObjectKeyFromObject(pool), err)
		}
	}
	h.before = pool.DeepCopy()
	return nil
}

func (h *PatchHelper) mainChanged(pool *v1alpha1.SandboxPool) bool {
	return !equality.Semantic.DeepEqual(h.before.Spec, pool.Spec) ||
		!equality.Semantic.DeepEqual(h.before.Labels, pool.Labels) ||
		!equality.Semantic.DeepEqual(h.before.Annotations, pool.Annotations) ||
		h.listsChanged(pool)
}

// listsChanged reports whether lists changed, which a merge patch can only replace as a whole.
func (h *PatchHelper) listsChanged(pool *v1alpha1.SandboxPool) bool {
	return !equality.Semantic.DeepEqual(h.before.Finalizers, pool.Finalizers) ||
		!equality.Semantic.DeepEqual(h.before.OwnerReferences, pool.OwnerReferences)
}

func (h *PatchHelper) patchMain(ctx context.Context, pool *v1alpha1.SandboxPool) error {
	before, after := h.before.DeepCopy(), pool.DeepCopy()
	before.Status, after.Status = v1alpha1.SandboxPoolStatus{}, v1alpha1.SandboxPoolStatus{}
	// With an empty uid in the copy, the uid becomes part of the difference, and so a precondition of the write.
	before.UID, after.UID = "", h.before.UID

	diff := client.MergeFrom(before)
	if h.listsChanged(pool) {
		// Another writer may have added a finalizer after we read the list that this patch replaces.
		diff = client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	if err := h.client.Patch(ctx, after, diff); err != nil {
		return fmt.Errorf("patching pool %s: %w", client.ObjectKeyFromObject(pool), err)
	}
	after.DeepCopyInto(pool)
	return nil
}
