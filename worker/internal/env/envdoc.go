// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/snapshot"
)

// envDoc is an Env as a document, read live. Snapshots are read from it and written by their place in it.
type envDoc struct {
	*unstructured.Unstructured
	clusterID string
}

// memberAt is a member's document and its place, as a JSON pointer.
type memberAt struct {
	doc              map[string]any
	cluster, pointer string
}

// member finds a local member by name; nil if there is none.
func (d envDoc) member(name string) *memberAt {
	clusters, _, _ := unstructured.NestedSlice(d.Object, "spec", "clusters")
	for i := range clusters {
		cluster, _ := clusters[i].(map[string]any)
		if cluster["clusterID"] != d.clusterID {
			continue
		}
		members, _ := cluster["members"].([]any)
		for j := range members {
			if doc, _ := members[j].(map[string]any); doc["name"] == name {
				at := "/spec/clusters/" + strconv.Itoa(i)
				return &memberAt{doc: doc, cluster: at, pointer: at + "/members/" + strconv.Itoa(j)}
			}
		}
	}
	return nil
}

// spec is the document of the member's pool spec; empty if there is none.
func (m *memberAt) spec() map[string]any {
	spec, _ := m.doc["spec"].(map[string]any)
	return spec
}

// replicas returns the replicas that the document states, if any.
func (m *memberAt) replicas() (int32, bool) {
	value, ok := m.spec()["replicas"].(int64)
	return int32(value), ok
}

// edit returns what a memberPlan does to the document: tests of the member at the place, and the change.
func (d envDoc) edit(p *memberPlan, frozen *snapshot.Snapshot) ([]patch.Operation, error) {
	at := d.member(p.name)
	if at == nil {
		return nil, fmt.Errorf("member %s: %w", p.name, errStale)
	}
	ops := []patch.Operation{
		patch.Test(at.cluster+"/clusterID", d.clusterID),
		patch.Test(at.pointer+"/name", p.name),
	}
	switch p.verb {
	case verbAdmit, verbTakeBack:
		ops = append(ops,
			patch.Add(at.pointer+"/metadata", frozen.Metadata()),
			patch.Add(at.pointer+"/spec", frozen.Spec))
	case verbRestoreReplicas:
		old, _ := at.replicas()
		ops = append(ops,
			patch.Test(at.pointer+"/spec/replicas", old),
			patch.Replace(at.pointer+"/spec/replicas", p.replicas))
	case verbAddPullSecret:
		name := v1alpha1.EnvImagePullSecretName(d.GetName())
		ops = append(ops, patch.Add(at.pointer+"/spec/template/spec/imagePullSecrets", snapshot.WithPullSecret(at.spec(), name)))
	default:
		return nil, fmt.Errorf("member %s: %s does not edit the Env", p.name, p.verb)
	}
	return ops, nil
}
