// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"

	"navix.sh/atoll/e2e/must"
)

const (
	template = `{"apiVersion":"agents.navix.sh/v1alpha1","kind":"SandboxTemplate","metadata":{"name":"walked"},"spec":{"version":"v1.0.0",` +
		`"template":{"spec":{"containers":[{"name":"main","image":"registry.example/python",` +
		`"env":[{"name":"SECRET","value":"` + canary + `template"}]}]}}}}`
	env = `{"apiVersion":"agents.navix.sh/v1alpha1","kind":"SandboxEnv","metadata":{"name":"walked","namespace":"default"},"spec":{` +
		`"mode":"WarmPool","templateRef":{"name":"walked"},"clusters":[{"clusterID":"east","members":[{"name":"walked-east",` +
		`"spec":{"replicas":0},"config":{"inlineResources":{"requests":{"cpu":"10m","memory":"16Mi"}}}}]}]}}`
)

// catalogue walks what the hub keeps for platform teams: templates, Envs, their plans, revisions and rollouts.
func (w *walk) catalogue() {
	w.t.Helper()
	bad := strings.Replace(template, `"image":`, `"resources":{"limits":{"memory":"`+canary+`quantity"}},"image":`, 1)
	w.ok("", "POST", "/v1/templates/walked:plan", template)
	w.call("put", "all", "PUT", "/v1/templates/walked", bad)
	w.ok("put", "PUT", "/v1/templates/walked", template)
	w.ok("", "GET", "/v1/templates", "")
	w.ok("", "GET", "/v1/templates/walked/revisions", "")
	const at = "/v1/envs/default/walked"
	w.ok("", "POST", at+":plan", env)
	w.call("put", "all", "PUT", at, strings.Replace(env, "WarmPool", canary+"mode", 1))
	w.ok("put", "PUT", at, env)
	w.ok("put", "PUT", at, strings.Replace(env, "10m", "20m", 1))
	w.ok("", "GET", at+"/revisions", "")
	w.call("", "all", "GET", at+"/rollout", "") // NOT_FOUND: it has no plan of one
	w.call("control", "all", "POST", at+"/rollout", `{"action":"PAUSE"}`)
	w.ok("import", "POST", "/v1/envs/default/python:import", `{"dryRun":true}`)
	w.ok("delete", "DELETE", at, "")
	w.ok("delete", "DELETE", "/v1/templates/walked", "")
}

// access walks what makes tokens: keys and invitations. None may be found anywhere.
func (w *walk) access() {
	w.t.Helper()
	for _, text := range []string{
		w.ok("create", "POST", "/v1/keys", `{"name":"walked","team":"red","namespaces":["default"],"scopes":["read"]}`),
		w.ok("rotate", "POST", "/v1/keys/walked:rotate", `{}`),
		w.ok("invite", "POST", "/v1/clusters:invite", `{"id":"venus"}`),
	} {
		var made struct {
			Token string `json:"token"`
		}
		must.Succeed(w.t, json.Unmarshal([]byte(text), &made))
		if len(made.Token) < 20 {
			w.t.Fatalf("no token in %s", text)
		}
		w.secrets = append(w.secrets, made.Token)
	}
	w.ok("delete", "DELETE", "/v1/keys/walked", "")
}

// inside walks the files and processes of a sandbox.
func (w *walk) inside(id string) {
	w.t.Helper()
	dir := w.t.TempDir() // of this machine: a sandbox's processes are
	must.Succeed(w.t, os.Chmod(dir, 0o777))
	at := "/v1/sandboxes/" + id
	file := "path=" + url.QueryEscape(dir+"/"+canary+"file")
	w.ok("files", "PUT", at+"/files?"+file, canary+"content", "Content-Type", "application/octet-stream")
	if text := w.ok("files", "GET", at+"/files?"+file, ""); text != canary+"content" {
		w.t.Errorf("the file has %q", text)
	}
	w.ok("files", "GET", at+"/files:list?path="+url.QueryEscape(dir), "")
	w.ok("files", "GET", at+"/files:stat?"+file, "")
	w.ok("files", "POST", at+"/files:mkdir", `{"path":"`+dir+`/`+canary+`dir"}`)
	w.ok("files", "DELETE", at+"/files?"+file, "")
	text := w.ok("processes", "POST", at+"/processes",
		`{"command":["sh","-c","echo $SECRET `+canary+`argument"],"envVars":{"OTHER":"`+canary+`other"},"stdin":"`+canary+`input"}`)
	if !strings.Contains(text, canary+"argument") {
		w.t.Errorf("the process has written %s", text)
	}
	w.ok("processes", "GET", at+"/processes", "")
}

// kubernetes walks the cluster's own API server, through the hub.
func (w *walk) kubernetes() {
	w.t.Helper()
	const secrets = "/v1/clusters/" + cluster + "/proxy/api/v1/namespaces/default/secrets"
	code, text := w.call("create", "all", "POST", secrets,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"walked"},"stringData":{"a":"`+canary+`kubernetes"}}`)
	if code != http.StatusCreated {
		w.t.Errorf("creating a Secret through the hub: %d %s", code, text)
	}
	w.ok("", "GET", secrets+"/walked", "")
	w.ok("create", "DELETE", secrets+"/walked?dryRun=All&note="+canary+"query", "")
	w.ok("create", "DELETE", secrets+"/walked", "")
}
