// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"strings"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
)

// What the hub says that clusters have of its catalogue is compared with what they have.
func TestI4CatalogueIsThere(t *testing.T) {
	for _, tt := range []struct {
		name, mark string
		source     bool // the hub's own cluster
		entry      *sandboxv1.CatalogEntry
		want       string
	}{
		{"the same", "c1/3", false, applied(3), ""},
		{"an older one", "c1/2", false, applied(3), "I4 east env default/py: has revision 2 of the catalogue"},
		{"none", "", false, applied(3), "I4 east env default/py: has revision 0 of the catalogue"},
		{"the hub's own cluster", "", true, applied(3), ""},
		{"it waits", "c1/2", false, &sandboxv1.CatalogEntry{Revision: 3, Clusters: []*sandboxv1.CatalogCluster{
			{ClusterId: "east", State: sandboxv1.CatalogCluster_PENDING, Revision: 2}}}, ""},
		{"a user's", "", false, nil, ""},
		{"unknown", "c1/2", false, nil, "I5 east env default/py: was delivered as c1/2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := cluster("east", nil, 0)
			c.Envs[0].Annotations = map[string]string{v1alpha1.CatalogAnnotationKey: tt.mark}
			if tt.source {
				c.Envs[0].Finalizers = []string{v1alpha1.CatalogFinalizer}
			}
			s := &Snapshot{Clusters: []Cluster{c}, Hub: &Hub{Clusters: []*sandboxv1.Cluster{hubCluster("east")},
				Envs: []*sandboxv1.Env{{Namespace: "default", Name: "py", Catalog: tt.entry}}}}
			var got []string
			for _, f := range catalogueIsThere(s) {
				got = append(got, f.Invariant+" "+f.Cluster+" "+f.Object+": "+f.Wrong)
			}
			if text := strings.Join(got, "; "); !strings.HasPrefix(text, tt.want) || (text == "") != (tt.want == "") {
				t.Errorf("got %q, want %q", text, tt.want)
			}
			s.Hub.Clusters[0].State = sandboxv1.ClusterState_UNREACHABLE
			if away := catalogueIsThere(s); len(away) > 0 {
				t.Errorf("of a cluster that is away: %v", away)
			}
		})
	}
}

func applied(revision int32) *sandboxv1.CatalogEntry {
	return &sandboxv1.CatalogEntry{Revision: revision, Clusters: []*sandboxv1.CatalogCluster{
		{ClusterId: "east", State: sandboxv1.CatalogCluster_APPLIED, Revision: revision}}}
}
