// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
)

// catalogueIsThere checks that each cluster has the revision of an Env that the hub reports as applied, and no revision that the hub does
// not know. Envs that the hub takes from its own cluster have no revision.
func catalogueIsThere(s *Snapshot) []Finding {
	if s.Hub == nil {
		return nil
	}
	told := map[string]*sandboxv1.CatalogEntry{}
	for _, e := range s.Hub.Envs {
		if e.GetCatalog() != nil {
			told[e.GetNamespace()+"/"+e.GetName()] = e.GetCatalog()
		}
	}
	var found []Finding
	registered := s.Hub.registered()
	for i := range s.Clusters {
		c := &s.Clusters[i]
		if shown := registered[c.ID]; shown == nil || shown.GetState() != sandboxv1.ClusterState_FRESH {
			continue // the hub delivers nothing to it, and knows what it had
		}
		revisions, own := map[string]string{}, map[string]bool{} // "": not delivered
		for j := range c.Envs {
			e := &c.Envs[j]
			if own[envName(e)] = slices.Contains(e.Finalizers, v1alpha1.CatalogFinalizer); own[envName(e)] {
				continue
			}
			revisions[envName(e)] = e.Annotations[v1alpha1.CatalogAnnotationKey]
			if mark := e.Annotations[v1alpha1.CatalogAnnotationKey]; mark != "" && told[envName(e)] == nil && e.DeletionTimestamp == nil {
				found = append(found, Finding{Invariant: "I5", Cluster: c.ID, Object: envObject(e), passing: true, identity: "unknown to the catalogue",
					Wrong: "was delivered as " + mark + ", and the catalogue does not have it", Expected: "the hub to know what it gave to clusters; " +
						"was its store set back?"})
			}
		}
		for env, entry := range told {
			for _, at := range entry.GetClusters() {
				if at.GetClusterId() != c.ID || at.GetState() != sandboxv1.CatalogCluster_APPLIED || own[env] {
					continue
				}
				if got := revisionOf(revisions[env]); got != at.GetRevision() {
					found = append(found, Finding{Invariant: "I4", Cluster: c.ID, Object: "env " + env, passing: true, identity: "catalogue",
						Wrong:    fmt.Sprintf("has revision %d of the catalogue", got),
						Expected: fmt.Sprintf("revision %d, which the hub says is applied", at.GetRevision())})
				}
			}
		}
	}
	return found
}

// revisionOf parses the revision of ID/REVISION. It returns 0 if there is none.
func revisionOf(mark string) (revision int32) {
	for i := range mark {
		if mark[i] == '/' {
			_, _ = fmt.Sscanf(mark[i+1:], "%d", &revision)
		}
	}
	return revision
}
