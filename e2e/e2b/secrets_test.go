// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/e2e/e2b/wire"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// secretCanary is the value of a Secret. Only this Secret and the sandbox's processes have it.
const secretCanary = "canary-of-a-secret-51c0"

// The values of Secrets that a claim refers to are in the processes of its sandbox, which was warm, and in nothing that is kept.
func TestSecretsOfAClaim(t *testing.T) {
	ready(t)
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := atoll.Cluster(cluster).Kubectl(t.Context(), args...)
		must.Succeed(t, err)
		return out
	}
	// As the chart's sandboxSecrets does for the worker.
	const role, account = "atoll-worker-sandbox-secrets", "atoll-system:atoll-worker"
	kubectl("create", "role", role, "-n", "default", "--verb=get", "--resource=secrets")
	kubectl("create", "rolebinding", role, "-n", "default", "--role="+role, "--serviceaccount="+account)
	wait.For(t, 20*time.Second, "the worker's right", func(ctx context.Context) error {
		_, err := atoll.Cluster(cluster).Kubectl(ctx, "auth", "can-i", "get", "secrets", "-n", "default", "--as=system:serviceaccount:"+account)
		return err
	})
	kubectl("create", "secret", "generic", "llm-openai", "-n", "default", "--from-literal=token="+secretCanary, "--from-literal=b=two")
	kubectl("create", "secret", "generic", "identity", "-n", "default", "--from-literal=token="+secretCanary)
	create := func(env, secrets string) (int, map[string]any) {
		return public(t, http.MethodPost, "/v1/sandboxes", `{"env":"`+env+`","user":"eve","claimKey":"`+t.Name()+secrets+`","secrets":[`+
			strings.ReplaceAll(secrets, "'", `"`)+`]}`)
	}
	const key = `{'env':'TOKEN','name':'llm-openai','key':'token'},{'env':'B','name':'llm-openai','key':'b'}`
	status, made := create("plain", key)
	if status != http.StatusOK || made["phase"] != "RUNNING" || strings.Contains(fmt.Sprint(made), secretCanary) {
		t.Fatalf("create: %d %v", status, made)
	}
	id := fmt.Sprint(made["id"])
	defer public(t, http.MethodDelete, "/v1/sandboxes/"+id, "")
	printed := func() string {
		text, err := run(t, id, connect(t, id), `echo "$TOKEN $B"`)
		must.Succeed(t, err)
		return text
	}
	if got := printed(); got != secretCanary+" two\n" {
		t.Errorf("printed %q", got)
	}
	// A repeated call sets what the Secret has then.
	kubectl("patch", "secret", "llm-openai", "-n", "default", "-p", `{"stringData":{"b":"three"}}`)
	if status, again := create("plain", key); status != http.StatusOK || again["id"] != made["id"] {
		t.Errorf("again: %d %v", status, again)
	}
	if got := printed(); got != secretCanary+" three\n" {
		t.Errorf("after a repeated call it printed %q", got)
	}
	for secrets, want := range map[string]string{
		`{'env':'TOKEN','name':'identity','key':'token'}`:   `422 "identity" is not a Secret that sandboxes`,
		`{'env':'TOKEN','name':'llm-other','key':'token'}`:  `422 there is no Secret "llm-other"`,
		`{'env':'TOKEN','name':'llm-openai','key':'none'}`:  `422 has no key "none"`,
		`{'env':'TOKEN','name':'../identity','key':'none'}`: `400 secrets[0].name`,
	} {
		code, text, _ := strings.Cut(want, " ")
		status, out := create("plain", secrets)
		if fmt.Sprint(status) != code || !strings.Contains(fmt.Sprint(out), text) || strings.Contains(fmt.Sprint(out), secretCanary) {
			t.Errorf("%s: %d %v, want %s", secrets, status, out, want)
		}
	}
	if status, out := create("python", `{'env':'TOKEN','name':'llm-openai','key':'token'}`); status != http.StatusBadRequest ||
		!strings.Contains(fmt.Sprint(out["errors"]), "secrets") {
		t.Errorf("where no template has the daemon: %d %v", status, out)
	}
	_, left := public(t, http.MethodGet, "/v1/sandboxes?user=eve", "")
	if n := strings.Count(fmt.Sprint(left["sandboxes"]), "clusterId"); n != 1 {
		t.Errorf("%d sandboxes, want that of the first claim alone: %v", n, left)
	}
	testSecretsAtAWorker(t)
	wantSecretNowhere(t)
}

// testSecretsAtAWorker: a worker's own API sets the same, before the sandbox is returned, and lets go what cannot have it.
func testSecretsAtAWorker(t *testing.T) {
	t.Helper()
	create := func(env, more string) (int, map[string]any) {
		return ask(t, atoll.WorkerEndpoint(cluster).URL(), "", http.MethodPost, "/v1/sandboxes", `{"env":"`+env+`","user":"local",`+more+`}`)
	}
	folder := filepath.Join(t.TempDir(), secretCanary)
	key := `"claimKey":"at-a-worker","workdir":"` + folder + `","secrets":[{"env":"TOKEN","name":"llm-openai","key":"token"}]`
	file := `,"files":[{"path":"made","content":"` + base64.StdEncoding.EncodeToString([]byte(secretCanary+" file")) + `","mode":"0640"}]`
	worker := &wire.Client{Origin: atoll.E2BURL(cluster), Key: "e2b_00"}
	var id string
	for _, value := range []string{"one", "two"} { // a repeated call sets its own
		status, made := create("plain", key+`,"envVars":{"A":"`+secretCanary+" "+value+`"}`+file)
		if status != http.StatusOK || made["phase"] != "RUNNING" || strings.Contains(fmt.Sprint(made), secretCanary) ||
			id != "" && made["id"] != id {
			t.Fatalf("create at a worker: %d %v", status, made)
		}
		id = fmt.Sprint(made["id"])
		status, text, err := worker.Do(t.Context(), http.MethodPost, "/v2/sandboxes/"+id+"/connect", strings.NewReader(`{"timeout":60}`))
		if err != nil || status != http.StatusOK {
			t.Fatalf("connecting to it: %d %s, %v", status, text, err)
		}
		its := &wire.Sandbox{}
		must.Succeed(t, json.Unmarshal(text, its))
		got, err := worker.Run(t.Context(), its, `echo "$TOKEN,$A,$PWD,$(cat made),$(stat -c %a made)"`)
		want := secretCanary + "," + secretCanary + " " + value + "," + folder + "," + secretCanary + " file,640\n"
		if err != nil || got != want {
			t.Errorf("printed %q, %v, want %q", got, err, want)
		}
	}
	must.Succeed(t, worker.Kill(t.Context(), &wire.Sandbox{ID: id}))
	for _, row := range [][3]string{
		{"python", `"envVars":{"A":"` + secretCanary + `"}`, `400 does not list the runtime e2b`},
		{"plain", `"wait":"ASSIGNED","envVars":{"A":"` + secretCanary + `"}`, `400 READY, where envVars`},
		{"plain", `"execUser":"no-account-here","envVars":{"A":"` + secretCanary + `"}`, `400 execUser`},
		{"plain", `"secrets":[{"env":"TOKEN","name":"identity","key":"token"}]`, `422 "identity" is not a Secret that sandboxes`},
	} {
		code, text, _ := strings.Cut(row[2], " ")
		if status, out := create(row[0], row[1]); fmt.Sprint(status) != code || !strings.Contains(fmt.Sprint(out), text) ||
			strings.Contains(fmt.Sprint(out), secretCanary) {
			t.Errorf("%s %s at a worker: %d %v, want %s", row[0], row[1], status, out, row[2])
		}
	}
	_, left := ask(t, atoll.WorkerEndpoint(cluster).URL(), "", http.MethodGet, "/v1/sandboxes?user=local&phase=RUNNING", "")
	if n := strings.Count(fmt.Sprint(left["sandboxes"]), "clusterId"); n != 0 {
		t.Errorf("%d sandboxes of refused claims are left: %v", n, left)
	}
}

// wantSecretNowhere searches the cluster's objects but for Secrets, the logs, what hub and workers keep, and a backup of the hub.
func wantSecretNowhere(t *testing.T) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "hub.tar.gz")
	ctl := exec.CommandContext(t.Context(), filepath.Join(programs, "atollctl"), slices.Concat(atoll.HubEndpoint().Flags(),
		[]string{"--plaintext", "hub", "backup", archive})...)
	if out, err := ctl.CombinedOutput(); err != nil {
		t.Fatalf("backing up: %v\n%s", err, out)
	}
	backup, err := stack.Unzip(archive)
	if err != nil || !stack.Holds(backup, "llm-openai") || stack.Holds(backup, secretCanary) {
		t.Errorf("%d bytes of a backup have the value of a Secret, or lack the claim that refers to it: %v", len(backup), err)
	}
	workers, err := filepath.Glob(filepath.Join(filepath.Dir(atoll.HubData()), "worker-*"))
	if err != nil || len(workers) == 0 {
		t.Errorf("no worker has data: %v", err)
	}
	wantNowhere(t, secretCanary, []string{"pods", "events", "sandboxenvs", "sandboxpools", "configmaps"},
		append(workers, logs, atoll.HubData())...)
}
