// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/sets"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/manifest"
)

const (
	prefix        = "catalog/"
	idKey         = hubstate.CatalogueKey
	objectPrefix  = prefix + "o/"
	historyPrefix = prefix + "h/"
	clusterPrefix = prefix + "c/"
)

// The bounds of what is stored.
const (
	maxManifest  = 128 << 10 // bytes
	maxEnvs      = 5000
	maxTemplates = 1000
	maxRevisions = 10
	maxMessage   = 512
)

// record is an Env or a template in the store.
type record struct {
	Ref      manifest.Ref    `json:"ref"`
	Revision int32           `json:"revision"`
	Changed  time.Time       `json:"changed"`
	By       string          `json:"by,omitempty"`
	Manifest json.RawMessage `json:"manifest,omitempty"` // none: the object is removed
	Rollout  *rollout        `json:"rollout,omitempty"`
	Source   *origin         `json:"source,omitempty"` // nil: the API wrote it
	Undo     bool            `json:"undo,omitempty"`   // an undo restored an earlier manifest

	object manifest.Object  // of Manifest
	in     sets.Set[string] // the clusters that object names
	stored uint64           // revision of the entry
}

// revision is an entry of the history.
type revision struct {
	Revision int32           `json:"revision"`
	Changed  time.Time       `json:"changed"`
	By       string          `json:"by,omitempty"`
	Manifest json.RawMessage `json:"manifest,omitempty"`
}

// clusterStatus is the status of a manifest in a cluster.
type clusterStatus struct {
	Revision int32                          `json:"r"` // the revision that the cluster has
	State    sandboxv1.CatalogCluster_State `json:"s"`
	Reason   string                         `json:"w,omitempty"`
	Message  string                         `json:"m,omitempty"`
	// Tried is the record's revision to which State applies; 0: not known, as in entries of earlier releases.
	Tried int32 `json:"t,omitempty"`
	// Generation is the object's generation after the cluster wrote it; 0: not known.
	Generation int64 `json:"g,omitempty"`
}

// notDelivered returns the status of a manifest that the cluster was not seen to take. revision is the one that the cluster has.
func notDelivered(revision int32) clusterStatus {
	return clusterStatus{
		Revision: revision, State: sandboxv1.CatalogCluster_PENDING, Reason: "NotDelivered", Message: "the cluster has not got it yet",
	}
}

// statuses holds the statuses of one cluster.
type statuses map[string]clusterStatus // by key

func keyOf(r manifest.Ref) string { return r.Kind + "/" + r.Namespace + "/" + r.Name }

func (r *record) removed() bool { return len(r.Manifest) == 0 }

func (r *record) prepare(stored uint64) (err error) {
	if r.stored = stored; !r.removed() {
		if r.object, err = manifest.Parse(r.Manifest); err != nil {
			return err
		}
		r.in = sets.New(r.object.Clusters()...)
	}
	if r.Rollout != nil && len(r.Rollout.From) > 0 {
		if r.Rollout.before, err = manifest.Parse(r.Rollout.From); err != nil {
			return err
		}
		r.Rollout.in = sets.New(r.Rollout.before.Clusters()...)
	}
	return nil
}

// objects returns the manifests from which clusters have parts of an Env. During an open rollout these include the previous manifest, for
// the clusters that are held back.
func (r *record) objects() []manifest.Object {
	switch {
	case r == nil:
		return nil
	case r.Rollout.open():
		return []manifest.Object{r.object, r.Rollout.before}
	}
	return []manifest.Object{r.object}
}

// clusters lists the clusters that have, or had, a part of an Env.
func (r *record) clusters() (out []string) {
	if out = r.object.Clusters(); r.Rollout != nil && r.Rollout.before != nil {
		out = append(out, r.Rollout.before.Clusters()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func toStruct(data []byte) (*structpb.Struct, error) {
	if len(data) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	out := &structpb.Struct{}
	if err := out.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("reading a stored manifest: %w", err)
	}
	return out, nil
}

// show returns the entry for a caller, with only the clusters that the caller may see, and without its manifest.
func (s *state) show(r *record, sees func(cluster string) bool) *sandboxv1.CatalogEntry {
	out := &sandboxv1.CatalogEntry{Revision: r.Revision, Changed: timestamppb.New(r.Changed), ChangedBy: r.By, Removed: r.removed()}
	ids := map[string]bool{}
	if r.Ref.Kind == manifest.EnvKind {
		for _, id := range r.clusters() {
			ids[id] = true
		}
	}
	for id, all := range s.statuses {
		if _, has := all[keyOf(r.Ref)]; has {
			ids[id] = true
		}
	}
	for id := range ids {
		if !sees(id) {
			continue
		}
		f := s.statuses[id][keyOf(r.Ref)]
		if want, _ := r.target(id); f.State == sandboxv1.CatalogCluster_STATE_UNSPECIFIED ||
			f.State == sandboxv1.CatalogCluster_APPLIED && f.Revision != want.revision {
			f = notDelivered(f.Revision)
		}
		out.Clusters = append(out.Clusters, &sandboxv1.CatalogCluster{
			ClusterId: id, State: f.State, Revision: f.Revision, Reason: f.Reason, Message: f.Message,
		})
	}
	slices.SortFunc(out.Clusters, func(a, b *sandboxv1.CatalogCluster) int { return strings.Compare(a.GetClusterId(), b.GetClusterId()) })
	out.Rollout = ofClusters(r.Rollout.show(r), sees)
	return out
}
