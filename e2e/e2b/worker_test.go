// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"navix.sh/atoll/e2e/e2b/wire"
	"navix.sh/atoll/e2e/must"
)

// A worker's local API serves E2B's clients by itself. With one key it and the hub serve the same sandboxes.
func TestAWorkerServesE2BClients(t *testing.T) {
	ready(t)
	worker := &wire.Client{Origin: atoll.E2BURL(cluster), Key: "e2b_" + "00"}
	own, err := worker.Create(t.Context(), env.Name, 60)
	must.Succeed(t, err)
	if err := worker.Write(t.Context(), own, "a/file", "content"); err != nil {
		t.Error(err)
	}
	if out, err := worker.Run(t.Context(), own, "cat a/file"); err != nil || out != "content" {
		t.Errorf("it printed %q, %v", out, err)
	}
	if text, err := worker.Read(t.Context(), own, "a/file"); err != nil || text != "content" {
		t.Errorf("read %q, %v", text, err)
	}
	if own.Cluster != cluster {
		t.Errorf("its cluster is %q, want %s", own.Cluster, cluster)
	}
	id, token := create(t, "/v2/sandboxes", `,"envVars":{"A":"of the hub"}`)
	status, text, err := worker.Do(t.Context(), http.MethodPost, "/v2/sandboxes/"+id+"/connect", nil)
	if err != nil || status != http.StatusOK {
		t.Fatalf("connecting to a sandbox of the hub: %d %s, %v", status, text, err)
	}
	again := &wire.Sandbox{}
	must.Succeed(t, json.Unmarshal(text, again))
	for _, s := range []*wire.Sandbox{again, {ID: id, Token: token}} {
		client := worker
		if s != again {
			client = &wire.Client{Origin: origin, Key: apiKey}
		}
		if out, err := client.Run(t.Context(), s, `printf %s "$A"`); err != nil || out != "of the hub" {
			t.Errorf("at %s the hub's sandbox printed %q, %v", client.Origin, out, err)
		}
	}
	if err := worker.Kill(t.Context(), own); err != nil {
		t.Error(err)
	}
	if status, text, err := worker.Do(t.Context(), http.MethodGet, "/sandboxes/"+own.ID, nil); err != nil || status != http.StatusNotFound {
		t.Errorf("after its end: %d %s, %v", status, text, err)
	}
}
