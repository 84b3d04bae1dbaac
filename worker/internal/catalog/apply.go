// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/manifest"
)

// job is one object of a call.
type job struct {
	ref          manifest.Ref
	catalog      string
	revision     int32
	object       manifest.Object // nil without a manifest
	remove, plan bool
}

// objectResult is the outcome for an object.
type objectResult struct {
	state           federationv1.CatalogOutcome_State
	reason, message string
	changes         []string
	manifest        []byte
	generation      int64
}

func (o objectResult) of(sent *federationv1.CatalogObject) *federationv1.CatalogOutcome {
	return &federationv1.CatalogOutcome{
		Kind: sent.GetKind(), Namespace: sent.GetNamespace(), Name: sent.GetName(), Revision: sent.GetRevision(), State: o.state,
		Reason: o.reason, Generation: o.generation,
		Message: clip.Text(o.message, maxMessage), Changes: o.changes, Manifest: o.manifest,
	}
}

func refuse(reason, format string, args ...any) *objectResult {
	return &objectResult{state: federationv1.CatalogOutcome_REFUSED, reason: reason, message: fmt.Sprintf(format, args...)}
}

// job reads an object of a call, and refuses objects that are not for this cluster (I15).
func (w *Writer) job(catalog string, sent *federationv1.CatalogObject) (*job, *objectResult) {
	j := &job{ref: manifest.Ref{Kind: sent.GetKind(), Namespace: sent.GetNamespace(), Name: sent.GetName()}, catalog: catalog,
		revision: sent.GetRevision()}
	if _, known := resources[j.ref.Kind]; !known || j.ref.Name == "" || (j.ref.Kind == manifest.EnvKind) != (j.ref.Namespace != "") {
		return j, refuse("Invalid", "%s is no object of a catalogue", j.ref)
	}
	if len(sent.GetManifest()) == 0 {
		return j, nil
	}
	o, err := manifest.Parse(sent.GetManifest())
	if err != nil {
		return j, refuse("Invalid", "%v", err)
	}
	if o.Ref() != j.ref {
		return j, refuse("Invalid", "the manifest is of %s", o.Ref())
	}
	if clusters := o.Clusters(); j.ref.Kind == manifest.EnvKind && (len(clusters) != 1 || clusters[0] != w.opts.ClusterID) {
		return j, refuse("Invalid", "it has segments of %s, want %s alone", strings.Join(clusters, ", "), w.opts.ClusterID)
	}
	o = o.Clean()
	metadata, _ := o["metadata"].(map[string]any)
	set(metadata, "annotations", v1alpha1.CatalogAnnotationKey, mark(catalog, j.revision))
	set(metadata, "labels", v1alpha1.LabelSyncSource, v1alpha1.LabelSyncSourceGlobal)
	j.object = o
	return j, nil
}

func set(metadata map[string]any, field, key, value string) {
	m, ok := metadata[field].(map[string]any)
	if !ok {
		m = map[string]any{}
		metadata[field] = m
	}
	m[key] = value
}

func mark(catalog string, revision int32) string { return catalog + "/" + strconv.Itoa(int(revision)) }

func parseMark(text string) (id string, revision int32, ok bool) {
	id, number, ok := strings.Cut(text, "/")
	n, err := strconv.ParseInt(number, 10, 32)
	return id, int32(n), ok && err == nil
}

// apply writes an object by server-side apply.
func (w *Writer) apply(ctx context.Context, j *job) objectResult {
	if j.object == nil {
		return *refuse("Invalid", "%s has no manifest", j.ref)
	}
	is, refused := w.look(ctx, j)
	if refused != nil {
		return *refused
	}
	got, err := w.write(ctx, j)
	if err != nil {
		out := failure(err)
		w.condition(ctx, j, is, out)
		return out
	}
	out := objectResult{state: federationv1.CatalogOutcome_APPLIED, generation: got.GetGeneration()}
	w.condition(ctx, j, got, out)
	return out
}

// look returns the current object, or nil if there is none. It refuses a job that would go back to an older revision, or whose object
// belongs to another catalogue.
func (w *Writer) look(ctx context.Context, j *job) (*unstructured.Unstructured, *objectResult) {
	is, err := w.of(j.ref).Get(ctx, j.ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		out := failure(err)
		return nil, &out
	}
	id, revision, made := madeBy(is)
	switch {
	case is.GetDeletionTimestamp() != nil:
		return is, &objectResult{state: federationv1.CatalogOutcome_PENDING, reason: "Terminating", message: "it is being deleted"}
	case made && id != j.catalog:
		return is, refuse("OtherCatalogue", "it belongs to catalogue %s of another hub; to give it to this one, remove its annotation %s", id,
			v1alpha1.CatalogAnnotationKey)
	case made && revision > j.revision && !j.plan:
		return is, refuse("NewerInCluster", "the cluster has revision %d, later than %d", revision, j.revision)
	}
	return is, nil
}

func (w *Writer) write(ctx context.Context, j *job, dryRun ...string) (*unstructured.Unstructured, error) {
	opts := metav1.ApplyOptions{FieldManager: fieldManager, DryRun: dryRun}
	send := func(o manifest.Object) (*unstructured.Unstructured, error) {
		return w.of(j.ref).Apply(ctx, j.ref.Name, &unstructured.Unstructured{Object: o.Copy()}, opts)
	}
	got, err := send(j.object)
	if apierrors.IsConflict(err) { // replicas of an autoscaled group belong to the autoscaler
		if without := j.object.WithoutScaled(); len(manifest.Diff(j.object, without)) > 0 {
			got, err = send(without)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("applying %s: %w", j.ref, err)
	}
	return got, nil
}

// failure returns the outcome for an API server's error.
func failure(err error) objectResult {
	out := objectResult{state: federationv1.CatalogOutcome_REFUSED, reason: string(apierrors.ReasonForError(err)), message: err.Error()}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		out.message = status.Status().Message
	}
	switch {
	case apierrors.IsConflict(err):
		out.state, out.reason, out.message = federationv1.CatalogOutcome_CONFLICT, "Conflict", conflicts(err)
	case strings.Contains(out.message, "field not declared in schema"):
		out.state, out.reason = federationv1.CatalogOutcome_REFUSED, "UnknownField"
		out.message += ". The CRDs in this cluster are of an earlier release: upgrade its worker's chart"
	case apierrors.IsNotFound(err) && status != nil && strings.Contains(out.message, "namespaces "):
		out.state, out.reason = federationv1.CatalogOutcome_PENDING, "NamespaceMissing"
	case apierrors.IsNotFound(err):
		out.state, out.reason = federationv1.CatalogOutcome_ABSENT, "NotFound"
	case status == nil || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err):
		out.state, out.reason = federationv1.CatalogOutcome_PENDING, "Unavailable"
	}
	return out
}

// conflicts returns a message with the fields, their owners, and the ways to resolve the conflict.
func conflicts(err error) string {
	var fields []string
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			fields = append(fields, strings.TrimPrefix(cause.Field, ".")+": "+cause.Message)
		}
	}
	if len(fields) == 0 {
		return err.Error()
	}
	return strings.Join(fields, "; ") + ". Remove the field from the catalogue's manifest, or give it the same value, or give the field " +
		"up in " +
		"the cluster: kubectl apply without it by its owner"
}

// condition writes the outcome into the Env's status. It is for people, so a failure is only logged.
func (w *Writer) condition(ctx context.Context, j *job, is *unstructured.Unstructured, out objectResult) {
	if j.ref.Kind != manifest.EnvKind || is == nil {
		return
	}
	condition := map[string]any{
		"type": string(v1alpha1.SandboxEnvConditionCatalogued), "status": string(metav1.ConditionFalse), "reason": "Refused",
		"message": clip.Text(out.message, maxMessage), "observedGeneration": is.GetGeneration(),
	}
	switch out.state {
	case federationv1.CatalogOutcome_APPLIED:
		condition["status"], condition["reason"] = string(metav1.ConditionTrue), "Applied"
		condition["message"] = fmt.Sprintf("revision %d of the catalogue", j.revision)
	case federationv1.CatalogOutcome_PENDING:
		condition["reason"] = "Pending"
	case federationv1.CatalogOutcome_CONFLICT:
		condition["reason"] = "Conflict"
	default:
	}
	condition["lastTransitionTime"] = w.opts.Time.Now().UTC().Format(time.RFC3339)
	if old := current(is); old != nil {
		if old["status"] == condition["status"] && old["lastTransitionTime"] != nil {
			condition["lastTransitionTime"] = old["lastTransitionTime"]
		}
		if old["status"] == condition["status"] && old["reason"] == condition["reason"] && old["message"] == condition["message"] &&
			old["observedGeneration"] == condition["observedGeneration"] {
			return
		}
	}
	body := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": manifest.EnvKind,
		"metadata": map[string]any{"name": j.ref.Name, "namespace": j.ref.Namespace, "uid": string(is.GetUID())},
		"status":   map[string]any{"conditions": []any{condition}},
	}}
	_, err := w.of(j.ref).ApplyStatus(ctx, j.ref.Name, body, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		w.opts.Log.Info("The condition Catalogued was not written", "env", j.ref.String(), "error", err.Error())
	}
}

func current(is *unstructured.Unstructured) map[string]any {
	all, _, err := unstructured.NestedSlice(is.Object, "status", "conditions")
	if err != nil {
		return nil
	}
	for _, v := range all {
		if c, ok := v.(map[string]any); ok && c["type"] == string(v1alpha1.SandboxEnvConditionCatalogued) {
			return c
		}
	}
	return nil
}
