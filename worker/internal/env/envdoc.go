// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/sandboxcache"
	"navix.sh/atoll/worker/internal/snapshot"
)

// envDoc is an Env as a document, read live. Snapshots are read and written by their position in it.
type envDoc struct {
	*unstructured.Unstructured
	clusterID string
}

// memberAt is a member's document and its position, as a JSON pointer. The document includes the member's snapshot: the one that the member
// itself states (stated), else the one in the Env's status.
type memberAt struct {
	doc              map[string]any
	cluster, pointer string
	stated           bool
	statesReplicas   bool // in the spec's member
}

// member returns the local member of that name, or nil if there is none.
func (d envDoc) member(name string) *memberAt {
	for _, at := range d.members() {
		if at.doc["name"] == name {
			return at
		}
	}
	return nil
}

// members returns the local members in their order.
func (d envDoc) members() (all []*memberAt) {
	clusters, _, _ := unstructured.NestedSlice(d.Object, "spec", "clusters")
	for i := range clusters {
		cluster, _ := clusters[i].(map[string]any)
		if cluster["clusterID"] != d.clusterID {
			continue
		}
		members, _ := cluster["members"].([]any)
		for j := range members {
			doc, _ := members[j].(map[string]any)
			at := &memberAt{cluster: "/spec/clusters/" + strconv.Itoa(i)}
			at.pointer = at.cluster + "/members/" + strconv.Itoa(j)
			at.doc, at.stated = sandboxcache.MemberDocument(d.Object, doc, d.clusterID)
			_, at.statesReplicas, _ = unstructured.NestedFieldNoCopy(doc, "spec", "replicas")
			all = append(all, at)
		}
	}
	return all
}

// spec returns the document of the member's pool spec, or nil if there is none.
func (m *memberAt) spec() map[string]any {
	spec, _ := m.doc["spec"].(map[string]any)
	return spec
}

// replicas returns the replicas that the document states, if any.
func (m *memberAt) replicas() (int32, bool) {
	value, ok := m.spec()["replicas"].(int64)
	return int32(value), ok
}

// split separates the edits of the Env's spec from those of its status. An edit goes into the spec if replicas or a snapshot are stated
// there. All others go into the status, because applying the manifest again would remove them from the spec.
func (d envDoc) split(edits []*memberPlan) (ofSpec, ofStatus []*memberPlan) {
	for _, m := range edits {
		at := d.member(m.name)
		stated := at != nil && at.stated
		if stated || m.verb == verbRestoreReplicas || at != nil && at.otherReplicas(m) {
			ofSpec = append(ofSpec, m)
		}
		if !stated && m.verb != verbRestoreReplicas {
			ofStatus = append(ofStatus, m)
		}
	}
	return ofSpec, ofStatus
}

// otherReplicas reports whether the member states replicas that differ from those of a snapshot that goes into the status. This is so if it
// states more than were admitted.
func (m *memberAt) otherReplicas(p *memberPlan) bool {
	n, _ := m.replicas()
	return m.statesReplicas && !m.stated && (p.verb == verbAdmit || p.verb == verbTakeBack) && n != p.replicas
}

// edit returns the operations of a memberPlan on the spec: tests of the member's position, and the change.
func (d envDoc) edit(p *memberPlan, frozen *snapshot.Snapshot) ([]patch.Operation, error) {
	at := d.member(p.name)
	if at == nil {
		return nil, fmt.Errorf("member %s: %w", p.name, errStale)
	}
	ops := []patch.Operation{
		patch.Test(at.cluster+"/clusterID", d.clusterID),
		patch.Test(at.pointer+"/name", p.name),
	}
	switch {
	case p.verb == verbRestoreReplicas || at.otherReplicas(p):
		old, _ := at.replicas()
		ops = append(ops,
			patch.Test(at.pointer+"/spec/replicas", old),
			patch.Replace(at.pointer+"/spec/replicas", p.replicas))
	case p.verb == verbAdmit || p.verb == verbTakeBack:
		ops = append(ops,
			patch.Add(at.pointer+"/metadata", frozen.Metadata()),
			patch.Add(at.pointer+"/spec", frozen.Spec))
	case p.verb == verbAddPullSecret:
		name := v1alpha1.EnvImagePullSecretName(d.GetName())
		ops = append(ops, patch.Add(at.pointer+"/spec/template/spec/imagePullSecrets", snapshot.WithPullSecret(at.spec(), name)))
	default:
		return nil, fmt.Errorf("member %s: %s does not edit the Env", p.name, p.verb)
	}
	return ops, nil
}

// freeze returns the operations that write status.snapshots with these edits. The list has one entry for each local member that has a
// snapshot, and none for members that are gone.
func (d envDoc) freeze(edits map[string]*snapshot.Snapshot, withSecret map[string]bool) []patch.Operation {
	snapshots := []any{}
	for _, at := range d.members() {
		name, _ := at.doc["name"].(string)
		entry := map[string]any{"clusterID": d.clusterID, "name": name, "metadata": at.doc["metadata"], "spec": at.spec()}
		switch frozen := edits[name]; {
		case frozen != nil:
			entry["metadata"], entry["spec"] = frozen.Metadata(), frozen.Spec
		case !sandboxcache.HasContainers(at.spec()):
			continue
		case withSecret[name]:
			spec := runtime.DeepCopyJSON(at.spec())
			snapshot.AddPullSecret(spec, v1alpha1.EnvImagePullSecretName(d.GetName()))
			entry["spec"] = spec
		}
		if entry["metadata"] == nil {
			delete(entry, "metadata")
		}
		snapshots = append(snapshots, entry)
	}
	if d.Object["status"] == nil {
		return []patch.Operation{patch.Add("/status", map[string]any{"snapshots": snapshots})}
	}
	return []patch.Operation{patch.Add("/status/snapshots", snapshots)}
}
