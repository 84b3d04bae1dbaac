// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
)

// An import puts nothing into the catalogue while a cluster cannot be asked, or refuses, and its dry run shows the rest.
func TestAnImportIsOfAllClusters(t *testing.T) {
	w := newWorld(t)
	applied, err := yaml.YAMLToJSON([]byte(envText))
	must.Succeed(t, err)
	reads := func(cluster string, outcome *federationv1.CatalogOutcome) {
		w.federation.Workers[cluster].OnCall = func(context.Context, *federationv1.Dispatch) (*federationv1.Answer, error) {
			return &federationv1.Answer{Disposition: federationv1.Disposition_DONE, Result: &federationv1.Answer_Catalog{
				Catalog: &federationv1.CatalogResult{Outcomes: []*federationv1.CatalogOutcome{outcome}},
			}}, nil
		}
	}
	read := func(dryRun bool) (*sandboxv1.ImportEnvResponse, error) {
		return w.ImportEnv(w.admin(), &sandboxv1.ImportEnvRequest{Namespace: "default", Name: "demo", DryRun: dryRun})
	}
	isIncomplete := func(why string) {
		t.Helper()
		shown, err := read(true)
		must.Succeed(t, err)
		states := map[string]sandboxv1.CatalogCluster_State{}
		for _, c := range shown.GetClusters() {
			states[c.GetClusterId()] = c.GetState()
		}
		if states["east"] != sandboxv1.CatalogCluster_APPLIED || states["west"] != sandboxv1.CatalogCluster_PENDING ||
			shown.GetManifest() == nil {
			t.Errorf("%s: a dry run shows %v", why, shown)
		}
		_, err = read(false)
		if workertest.WantReason(t, err, problem.Unavailable); !strings.Contains(err.Error(), "west: cluster west ") {
			t.Errorf("%s: %v", why, err)
		}
	}
	found := &federationv1.CatalogOutcome{State: federationv1.CatalogOutcome_FOUND, Manifest: applied}
	reads("east", found)
	w.federation.Workers["west"].SetConnected(false)
	isIncomplete("west is away")
	w.federation.Workers["west"].SetConnected(true)
	reads("west", &federationv1.CatalogOutcome{State: federationv1.CatalogOutcome_PENDING, Reason: "Unavailable", Message: "timeout"})
	isIncomplete("the API server of west does not respond")
	reads("west", &federationv1.CatalogOutcome{State: federationv1.CatalogOutcome_REFUSED, Reason: "Forbidden", Message: "forbidden"})
	isIncomplete("the API server of west refuses")
	reads("west", &federationv1.CatalogOutcome{State: federationv1.CatalogOutcome_ABSENT, Reason: "NotFound", Message: "not found"})
	if shown, err := read(true); err != nil || len(shown.GetClusters()) != 1 {
		t.Errorf("west has no part: a dry run shows %v, %v", shown, err)
	}

	reads("west", found)
	imported, err := read(false)
	must.Succeed(t, err)
	if len(imported.GetClusters()) != 2 || imported.GetCatalog().GetRevision() != 1 {
		t.Errorf("imported %v", imported)
	}
}
