// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/sandboxcache"
	"navix.sh/atoll/worker/internal/snapshot"
)

// editEnv makes all changes of the Env: one write of the local segment, and one of the snapshots in the status. Each write fails if the Env
// has changed since it was read.
func (a *actor) editEnv(ctx context.Context, p *plan) error {
	edits := editsOf(p)
	written := a.writeEdits(ctx, edits)
	var failure error
	for _, m := range edits {
		failure = a.settle(ctx, m, written)
		if written != nil {
			continue
		}
		if m.verb == verbRestoreReplicas {
			a.contests.Undone(client.ObjectKeyFromObject(a.o.Env), m.name)
		}
		a.recordEdit(ctx, m)
	}
	if written != nil || a.o.snapshotsAreKept() {
		return failure
	}
	// After an edit, the cache is behind the write. The next reconcile freezes any snapshot that is still missing.
	if len(edits) > 0 {
		return failure
	}
	return a.count(ctx, verbFreeze, a.writeStatus(ctx, nil))
}

// editsOf returns the member plans that change the Env.
func editsOf(p *plan) []*memberPlan {
	var edits []*memberPlan
	for i := range p.members {
		switch m := &p.members[i]; m.verb {
		case verbAdmit, verbTakeBack, verbRestoreReplicas, verbAddPullSecret:
			edits = append(edits, m)
		}
	}
	return edits
}

func (a *actor) writeEdits(ctx context.Context, edits []*memberPlan) error {
	if len(edits) == 0 {
		return nil
	}
	doc, err := a.document(ctx)
	if err != nil {
		return err
	}
	ofSpec, ofStatus := doc.split(edits)
	if len(ofSpec) > 0 {
		answer, err := a.patchSpec(ctx, doc, ofSpec)
		if err != nil {
			return err
		}
		a.read = answer
	}
	if len(ofStatus) == 0 {
		return nil
	}
	return a.writeStatus(ctx, ofStatus)
}

// patchSpec writes edits into the spec of the Env as it was read, and returns the new Env.
func (a *actor) patchSpec(ctx context.Context, doc *envDoc, edits []*memberPlan, opts ...client.PatchOption) (*envDoc, error) {
	ops := patch.AsRead(doc)
	for _, m := range edits {
		frozen, err := a.toFreeze(ctx, m)
		if err != nil {
			return nil, err
		}
		more, err := doc.edit(m, frozen)
		if err != nil {
			return nil, err
		}
		ops = append(ops, more...)
	}
	return a.send(doc, ops, func(answer *unstructured.Unstructured, body client.Patch) error {
		return a.client.Patch(ctx, answer, body, append(opts, client.FieldOwner(controllers.FieldManager))...)
	})
}

// writeStatus writes the snapshots of all members, with edits.
func (a *actor) writeStatus(ctx context.Context, edits []*memberPlan) error {
	doc, err := a.document(ctx)
	if err != nil {
		return err
	}
	answer, err := a.patchStatus(ctx, doc, edits)
	if err != nil {
		return err
	}
	a.read = answer
	return nil
}

// patchStatus writes the snapshots of all members, with edits, into the status of the Env as it was read, and returns the new Env.
func (a *actor) patchStatus(ctx context.Context, doc *envDoc, edits []*memberPlan, opts ...client.SubResourcePatchOption) (*envDoc, error) {
	rendered, withSecret := map[string]*snapshot.Snapshot{}, map[string]bool{}
	for _, m := range edits {
		if doc.member(m.name) == nil {
			return nil, fmt.Errorf("member %s: %w", m.name, errStale)
		}
		frozen, err := a.toFreeze(ctx, m)
		if err != nil {
			return nil, err
		}
		if frozen != nil {
			rendered[m.name] = frozen
		}
		withSecret[m.name] = m.verb == verbAddPullSecret
	}
	ops := append(patch.AsRead(doc), doc.freeze(rendered, withSecret)...)
	answer, err := a.send(doc, ops, func(answer *unstructured.Unstructured, body client.Patch) error {
		return a.client.Status().Patch(ctx, answer, body, append(opts, client.FieldOwner(controllers.FieldManager))...)
	})
	if err != nil {
		return nil, err
	}
	for name := range rendered {
		if sandboxcache.SnapshotIndex(answer.Object, a.clusterID, name) < 0 {
			return nil, errors.New("the API server does not keep status.snapshots: the CRD of SandboxEnv is of an earlier release; " +
				"upgrade the chart, or apply its files/crds")
		}
	}
	return answer, nil
}

// send sends a JSON patch of the Env as it was read, and returns the new Env.
func (a *actor) send(
	doc *envDoc, ops []patch.Operation, to func(answer *unstructured.Unstructured, body client.Patch) error,
) (*envDoc, error) {
	body, err := patch.JSON(ops)
	if err != nil {
		return nil, err
	}
	answer := doc.DeepCopy()
	err = to(answer, client.RawPatch(types.JSONPatchType, body))
	if patch.LostRace(err) {
		return nil, fmt.Errorf("%w: %w", errStale, err)
	}
	if err != nil {
		return nil, fmt.Errorf("patching the Env: %w", err)
	}
	return &envDoc{Unstructured: answer, clusterID: a.clusterID}, nil
}

// toFreeze returns the snapshot that an edit writes, or nil if its verb writes none. It fails if the live pool is not the observed one,
// because a newer one may have other replicas.
func (a *actor) toFreeze(ctx context.Context, m *memberPlan) (*snapshot.Snapshot, error) {
	switch m.verb {
	case verbAdmit:
		return m.snapshot, nil
	case verbTakeBack:
		live, err := a.readPool(ctx, m.name)
		if err != nil {
			return nil, err
		}
		spec, _, err := unstructured.NestedMap(live.Object, "spec")
		if err != nil {
			return nil, fmt.Errorf("reading the spec of pool %s: %w", m.name, err)
		}
		return snapshot.TakenBack(a.o.pools[m.name], runtime.DeepCopyJSON(spec), m.replicas), nil
	case verbRestoreReplicas:
		_, err := a.readPool(ctx, m.name)
		return nil, err
	default:
		return nil, nil
	}
}

func (a *actor) recordEdit(ctx context.Context, m *memberPlan) {
	switch m.verb {
	case verbAdmit:
		a.logAndRecord(ctx, m.name, corev1.EventTypeNormal, m.reason, m.verb,
			"rendered member %s from template %s (version %q, revision %s) with %d replicas",
			m.name, a.o.Template.Name, a.o.Template.Version, a.o.Template.Revision, m.replicas)
	case verbTakeBack:
		a.logAndRecord(ctx, m.name, corev1.EventTypeNormal, m.reason, m.verb,
			"the snapshot of member %s was gone from the Env; took it back from the live pool, with %d replicas", m.name, m.replicas)
	case verbRestoreReplicas:
		a.logAndRecord(ctx, m.name, corev1.EventTypeWarning, m.reason, m.verb,
			"replicas of member %s are the autoscaler's while its scaling group is enabled; put back to %d", m.name, m.replicas)
	case verbAddPullSecret:
		a.logAndRecord(ctx, m.name, corev1.EventTypeNormal, m.reason, m.verb,
			"member %s pulls images with Secret %s from now on; its idle Pods are replaced", m.name, v1alpha1.EnvImagePullSecretName(a.o.Env.Name))
	}
}
