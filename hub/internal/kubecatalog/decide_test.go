// SPDX-License-Identifier: Apache-2.0

package kubecatalog

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/hub/internal/catalog"
)

func TestDecideAuthor(t *testing.T) {
	write := func(manager, fields string, second int64) metav1.ManagedFieldsEntry {
		f := metav1.ManagedFieldsEntry{Manager: manager}
		if fields != "" {
			f.FieldsV1 = &metav1.FieldsV1{}
			f.FieldsV1.SetRawString(fields)
		}
		if second > 0 {
			at := metav1.NewTime(time.Unix(second, 0))
			f.Time = &at
		}
		return f
	}
	const spec, labels = `{"f:spec":{}}`, `{"f:metadata":{}}`
	ofStatus := write("kubectl", spec, 9)
	ofStatus.Subresource = "status"
	for name, tt := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   string
	}{
		"none":                   {nil, ""},
		"Atoll alone":            {[]metav1.ManagedFieldsEntry{write("atoll-worker", spec, 1)}, ""},
		"a user":                 {[]metav1.ManagedFieldsEntry{write("kubectl", spec, 1), write("atoll-worker", spec, 2)}, "kubectl"},
		"a user after Atoll":     {[]metav1.ManagedFieldsEntry{write("atoll-worker", spec, 1), write("kubectl", spec, 2)}, "kubectl"},
		"the last":               {[]metav1.ManagedFieldsEntry{write("flux", spec, 2), write("kubectl", spec, 1)}, "flux"},
		"of two in one second":   {[]metav1.ManagedFieldsEntry{write("flux", spec, 2), write("kubectl", spec, 2)}, "kubectl"},
		"one without a time":     {[]metav1.ManagedFieldsEntry{write("kubectl", spec, 0)}, "kubectl"},
		"labels alone":           {[]metav1.ManagedFieldsEntry{write("kubectl", labels, 1)}, ""},
		"a status":               {[]metav1.ManagedFieldsEntry{ofStatus}, ""},
		"an entry without field": {[]metav1.ManagedFieldsEntry{write("kubectl", "", 1)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{}}
			o.SetManagedFields(tt.fields)
			if got := author(o); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if !isSource(o) {
				t.Error("what no catalogue delivered is a source")
			}
			o.SetAnnotations(map[string]string{v1alpha1.CatalogAnnotationKey: "prod"})
			if got, want := isSource(o), tt.want != ""; got != want {
				t.Errorf("delivered by a catalogue: source %t, want %t", got, want)
			}
		})
	}
}

func TestDecideFinalizer(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetFinalizers([]string{"other"})
	if hasFinalizer(o) {
		t.Error("a finalizer of others is the hub's")
	}
	o.SetFinalizers([]string{"other", v1alpha1.CatalogFinalizer})
	if !hasFinalizer(o) {
		t.Error("the hub's finalizer is not seen")
	}
}

// Other controllers' conditions, and what is none, are passed over.
func TestDecideCurrent(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"observedGeneration": int64(3), "conditions": []any{
		"no condition", map[string]any{"type": "Ready", "status": "True"},
		map[string]any{"type": v1alpha1.SandboxEnvConditionCatalogued, "status": "False", "reason": "Pending"},
	}}}}
	is, generation := current(o)
	if generation != 3 || len(is) != 1 || is[0].Type != v1alpha1.SandboxEnvConditionCatalogued || is[0].Reason != "Pending" {
		t.Errorf("generation %d, conditions %+v", generation, is)
	}
}

// One condition less, or one of two that differs, is written.
func TestDecideStatusIsWrittenForAnyDifference(t *testing.T) {
	rolls := catalog.Summary{State: sandboxv1.CatalogCluster_PENDING, Message: "m", Reconciling: "Rollout"}
	done, conflict := rolls, rolls
	done.Reconciling, conflict.State = "", sandboxv1.CatalogCluster_CONFLICT
	for name, next := range map[string]catalog.Summary{"one less": done, "the first differs": conflict} {
		o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"generation": int64(3)}}}
		o.Object["status"] = status(o, conditions(3, "", rolls), time.Unix(1, 0))
		if status(o, conditions(3, "", next), time.Unix(9, 0)) == nil {
			t.Errorf("%s: it is not written", name)
		}
	}
}
