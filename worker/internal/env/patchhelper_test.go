// SPDX-License-Identifier: Apache-2.0

package env

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
)

// TestPatchHelperOnAnAPIServer is in this package because pkg/patch may not start a control plane. It tests what a client in
// memory does not imitate: uids, and the API server's handling of a patch of status.
func TestPatchHelperOnAnAPIServer(t *testing.T) {
	w := newIdleWorld(t)
	create := func() *v1alpha1.SandboxPool {
		t.Helper()
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "a"}}
		w.Must(w.Live.Create(w.ctx, pool))
		return pool
	}

	pool := create()
	helper := patch.NewPatchHelper(w.Live, pool)
	pool.Spec.Replicas, pool.Finalizers = 2, []string{v1alpha1.SandboxPoolFinalizer}
	pool.Status.Phase, pool.Status.IdleReplicas = v1alpha1.SandboxPoolPhaseReady, 2
	w.Must(helper.Patch(w.ctx, pool))
	for _, got := range []*v1alpha1.SandboxPool{pool, w.Pool("a")} {
		if got.Spec.Replicas != 2 || got.Status.IdleReplicas != 2 || got.Status.Phase != v1alpha1.SandboxPoolPhaseReady ||
			len(got.Finalizers) != 1 {
			t.Errorf("got %+v", got)
		}
	}
	version := pool.ResourceVersion
	pool.Status.IdleReplicas = 0
	pool.Finalizers = nil
	w.Must(helper.Patch(w.ctx, pool))
	if got := w.Pool("a"); got.Status.IdleReplicas != 0 || len(got.Finalizers) != 0 || got.ResourceVersion == version {
		t.Errorf("got %+v", got)
	}

	// The pool is created again under the same name: a write meant for the old one must not reach it.
	w.Must(w.Live.Delete(w.ctx, pool))
	create()
	pool.Spec.Replicas, pool.Status.IdleReplicas = 9, 9
	if err := helper.Patch(w.ctx, pool); !apierrors.IsInvalid(err) {
		t.Errorf("Patch() of a pool that was made anew = %v, want it refused", err)
	}
	if got := w.Pool("a"); got.Spec.Replicas != 0 || got.Status.IdleReplicas != 0 {
		t.Errorf("the new pool was written to: %+v", got)
	}
}
