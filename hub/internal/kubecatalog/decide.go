// SPDX-License-Identifier: Apache-2.0

package kubecatalog

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/hub/internal/catalog"
	"navix.sh/atoll/pkg/clip"
)

const maxMessage = 1024

// ours lists the conditions that the hub writes.
var ours = []string{v1alpha1.SandboxEnvConditionCatalogued, v1alpha1.CatalogConditionReconciling, v1alpha1.CatalogConditionStalled}

// isSource reports whether a user wrote an object. An object that a catalogue has delivered and no user has written is no source.
func isSource(o *unstructured.Unstructured) bool {
	return o.GetAnnotations()[v1alpha1.CatalogAnnotationKey] == "" || author(o) != ""
}

// author returns the last field manager of the spec other than Atoll, or "" if there is none.
func author(o *unstructured.Unstructured) (name string) {
	var at time.Time
	for _, f := range o.GetManagedFields() {
		if f.Subresource != "" || strings.HasPrefix(f.Manager, "atoll-") || f.FieldsV1 == nil ||
			!strings.Contains(f.FieldsV1.GetRawString(), `"f:spec"`) {
			continue
		}
		if f.Time == nil || !f.Time.Time.Before(at) {
			name = f.Manager
		}
		if f.Time != nil {
			at = f.Time.Time
		}
	}
	return name
}

// hasFinalizer reports whether the deletion of an object waits for the hub.
func hasFinalizer(o *unstructured.Unstructured) bool {
	return slices.Contains(o.GetFinalizers(), v1alpha1.CatalogFinalizer)
}

var reasons = map[sandboxv1.CatalogCluster_State]string{
	sandboxv1.CatalogCluster_APPLIED:  "Applied",
	sandboxv1.CatalogCluster_PENDING:  "Pending",
	sandboxv1.CatalogCluster_REFUSED:  "Refused",
	sandboxv1.CatalogCluster_CONFLICT: "Conflict",
}

// conditions returns the conditions of an object. refused is the reason why it was not taken, or "".
func conditions(generation int64, refused string, s catalog.Summary) (out []metav1.Condition) {
	if refused != "" {
		s = catalog.Summary{State: sandboxv1.CatalogCluster_REFUSED, Message: refused, Stalled: "Refused"}
	}
	add := func(kind string, status metav1.ConditionStatus, reason string) {
		out = append(out, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: clip.Text(s.Message, maxMessage), ObservedGeneration: generation,
		})
	}
	status := metav1.ConditionFalse
	if s.State == sandboxv1.CatalogCluster_APPLIED {
		status = metav1.ConditionTrue
	}
	add(v1alpha1.SandboxEnvConditionCatalogued, status, reasons[s.State])
	if s.Reconciling != "" {
		add(v1alpha1.CatalogConditionReconciling, metav1.ConditionTrue, s.Reconciling)
	}
	if s.Stalled != "" {
		add(v1alpha1.CatalogConditionStalled, metav1.ConditionTrue, s.Stalled)
	}
	return out
}

// current returns the hub's conditions of an object, and the generation to which they apply.
func current(o *unstructured.Unstructured) (out []metav1.Condition, generation int64) {
	generation, _, _ = unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, v := range all {
		m, ok := v.(map[string]any)
		if !ok {
			continue
		}
		text := func(key string) string { s, _ := m[key].(string); return s }
		if !slices.Contains(ours, text("type")) {
			continue
		}
		c := metav1.Condition{
			Type: text("type"), Status: metav1.ConditionStatus(text("status")), Reason: text("reason"), Message: text("message"),
		}
		c.ObservedGeneration, _ = m["observedGeneration"].(int64)
		if at, err := time.Parse(time.RFC3339, text("lastTransitionTime")); err == nil {
			c.LastTransitionTime = metav1.NewTime(at)
		}
		out = append(out, c)
	}
	return out, generation
}

// status returns the status to write, or nil if the object has it. A condition keeps its transition time while its status is the same.
func status(o *unstructured.Unstructured, want []metav1.Condition, now time.Time) map[string]any {
	is, generation := current(o)
	same := generation == o.GetGeneration() && len(is) == len(want)
	list := make([]any, 0, len(want))
	for _, c := range want {
		c.LastTransitionTime = metav1.NewTime(now)
		i := slices.IndexFunc(is, func(have metav1.Condition) bool { return have.Type == c.Type })
		if i >= 0 && is[i].Status == c.Status && !is[i].LastTransitionTime.IsZero() {
			c.LastTransitionTime = is[i].LastTransitionTime
		}
		same = same && i >= 0 && is[i] == c
		list = append(list, map[string]any{
			"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message, "observedGeneration": c.ObservedGeneration,
			"lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339),
		})
	}
	if same {
		return nil
	}
	return map[string]any{"observedGeneration": o.GetGeneration(), "conditions": list}
}
