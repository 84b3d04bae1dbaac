// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane/planetest"
)

const byHand = "kubectl delete ciliumnetworkpolicies.cilium.io --all-namespaces -l agentbox.navix.sh/managed-by=sandbox-api-server"

// withNames is a cluster that was in the mode cilium: its pool lists a name. refused is the verb that is forbidden now on
// CiliumNetworkPolicies; empty: none.
func withNames(t *testing.T, refused string) client.WithWatch {
	t.Helper()
	forbidden := func(verb string, o interface {
		GroupVersionKind() schema.GroupVersionKind
	}) error {
		if verb != refused || o.GroupVersionKind().Group != ciliumKind.Group {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Group: ciliumKind.Group, Resource: "ciliumnetworkpolicies"}, "",
			errors.New("no role may "+verb))
	}
	c := fake.NewClientBuilder().WithScheme(planetest.Scheme(t)).WithObjects(poolTold()).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := forbidden("list", list.GetObjectKind()); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := forbidden("delete", o.GetObjectKind()); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
	}).Build()
	e, err := ParseEgress("pypi.org")
	must.Succeed(t, err)
	must.Succeed(t, c.Create(t.Context(), Names(poolTold(), e)))
	return c
}

func cleanupOf(c client.WithWatch, r *Reconciler, logs *bytes.Buffer) *cleanup {
	log := funcr.New(func(prefix, args string) { fmt.Fprintln(logs, prefix, args) }, funcr.Options{})
	return &cleanup{client: c, live: c, kinds: obsolete(Kubernetes), left: r.leave, log: log}
}

// conditionOf is what a pool with this annotation tells.
func conditionOf(t *testing.T, r *Reconciler, egress string) (status metav1.ConditionStatus, message string) {
	t.Helper()
	pool := poolTold()
	pool.Annotations = map[string]string{v1alpha1.EgressAnnotationKey: egress}
	w, err := r.gather(t.Context(), pool)
	must.Succeed(t, err)
	return w.condition.Status, w.condition.Message
}

// What the mode cilium made goes with it, and nothing else does.
func TestPoliciesOfAnEarlierModeGo(t *testing.T) {
	for mode, want := range map[Mode][]schema.GroupVersionKind{
		Off: {policyKind, ciliumKind}, Kubernetes: {ciliumKind}, Cilium: nil, "": {policyKind, ciliumKind},
	} {
		if got := obsolete(mode); !slices.Equal(got, want) {
			t.Errorf("the mode %q does not have %v, want %v", mode, got, want)
		}
	}
	c := withNames(t, "")
	e, err := ParseEgress("pypi.org")
	must.Succeed(t, err)
	teams := Names(poolTold(), e)
	teams.SetName("of-a-team")
	must.Succeed(t, c.Create(t.Context(), teams))
	unlabelled := Names(poolTold(), e)
	unlabelled.SetName(NameOf("unlabelled"))
	unlabelled.SetLabels(nil)
	must.Succeed(t, c.Create(t.Context(), unlabelled))
	must.Succeed(t, c.Create(t.Context(), Policy(poolTold(), Worker{})))

	var logs bytes.Buffer
	r := &Reconciler{opts: Options{Mode: Kubernetes}, client: c}
	must.Succeed(t, cleanupOf(c, r, &logs).Start(t.Context()))
	var left []string
	for _, kind := range []schema.GroupVersionKind{policyKind, ciliumKind} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		must.Succeed(t, c.List(t.Context(), list))
		for i := range list.Items {
			left = append(left, list.Items[i].GetName())
		}
	}
	slices.Sort(left)
	if want := []string{NameOf("told"), NameOf("unlabelled"), "of-a-team"}; !slices.Equal(left, want) {
		t.Errorf("the policies are %q, want %q; %s", left, want, logs.String())
	}
	if _, message := conditionOf(t, r, "pypi.org"); !strings.HasSuffix(message, "; what is not opened stays closed") {
		t.Errorf("a pool tells %q", message)
	}
}

// What the worker may not delete goes on opening names. Log and conditions say so, and what a person does about it.
func TestWhatIsLeftIsTold(t *testing.T) {
	for refused, known := range map[string]bool{"list": false, "delete": true} {
		c := withNames(t, refused)
		var logs bytes.Buffer
		var told []string
		r := &Reconciler{opts: Options{Mode: Kubernetes}, client: c}
		r.OnGateChange(func(pool types.NamespacedName) { told = append(told, pool.String()) })
		must.Succeed(t, cleanupOf(c, r, &logs).Start(t.Context()))
		if !strings.Contains(logs.String(), byHand) || !slices.Equal(told, []string{"prod/told"}) {
			t.Errorf("no right to %s: the log has %s, and %q look again", refused, logs.String(), told)
		}
		if status, message := conditionOf(t, r, "pypi.org"); status != metav1.ConditionFalse || !strings.HasSuffix(message, byHand) {
			t.Errorf("no right to %s: a pool with names tells %s %q", refused, status, message)
		}
		// One without names may have had some. It says so where it is known that there are policies, and not in each cluster with Cilium.
		if status, message := conditionOf(t, r, "dns"); status != metav1.ConditionTrue || strings.HasSuffix(message, byHand) != known {
			t.Errorf("no right to %s: a pool without names tells %s %q", refused, status, message)
		}
	}
}
