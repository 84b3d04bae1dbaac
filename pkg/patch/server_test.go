// SPDX-License-Identifier: Apache-2.0

package patch_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/pkg/patch"
)

// TestOnAnAPIServer tries what a client in memory does not imitate: uids, generations, and fields that others wrote.
func TestOnAnAPIServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	set, err := plane.Up(ctx, plane.Options{}, "patch")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := set.Down(ctx); err != nil {
			t.Error(err)
		}
	}()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(set.Plane("patch").Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	create := func() *v1alpha1.SandboxPool {
		t.Helper()
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
		if err := c.Create(ctx, pool); err != nil {
			t.Fatal(err)
		}
		return pool
	}
	read := func() *v1alpha1.SandboxPool {
		t.Helper()
		pool := &v1alpha1.SandboxPool{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "a"}, pool); err != nil {
			t.Fatal(err)
		}
		return pool
	}

	pool := create()
	helper := patch.NewPatchHelper(c, pool)
	pool.Spec.Replicas, pool.Finalizers = 2, []string{v1alpha1.SandboxPoolFinalizer}
	pool.Status.Phase, pool.Status.IdleReplicas = v1alpha1.SandboxPoolPhaseReady, 2
	if err := helper.Patch(ctx, pool); err != nil {
		t.Fatal(err)
	}
	for _, got := range []*v1alpha1.SandboxPool{pool, read()} {
		if got.Spec.Replicas != 2 || got.Status.IdleReplicas != 2 || got.Status.Phase != v1alpha1.SandboxPoolPhaseReady || len(got.Finalizers) != 1 {
			t.Errorf("got %+v", got)
		}
	}
	version := pool.ResourceVersion
	pool.Status.IdleReplicas = 0
	pool.Finalizers = nil
	if err := helper.Patch(ctx, pool); err != nil {
		t.Fatal(err)
	}
	if got := read(); got.Status.IdleReplicas != 0 || len(got.Finalizers) != 0 || got.ResourceVersion == version {
		t.Errorf("got %+v", got)
	}

	// The pool is made anew under the same name: what was meant for the old one must not reach it.
	if err := c.Delete(ctx, pool); err != nil {
		t.Fatal(err)
	}
	create()
	pool.Spec.Replicas, pool.Status.IdleReplicas = 9, 9
	if err := helper.Patch(ctx, pool); !apierrors.IsInvalid(err) {
		t.Errorf("Patch() of a pool that was made anew = %v, want it refused", err)
	}
	if got := read(); got.Spec.Replicas != 0 || got.Status.IdleReplicas != 0 {
		t.Errorf("the new pool was written to: %+v", got)
	}
}
