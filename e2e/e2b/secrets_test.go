// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
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
		code, out := call(t, http.MethodPost, "/sandboxes/"+id+"/connect", `{"timeout":60}`)
		if code != http.StatusOK {
			t.Fatalf("connect: %d %v", code, out)
		}
		text, err := run(t, id, fmt.Sprint(out["envdAccessToken"]), `echo "$TOKEN $B"`)
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
	wantSecretNowhere(t)
}

// wantSecretNowhere searches the cluster's objects but for Secrets, the logs, and what the hub keeps and backs up.
func wantSecretNowhere(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"pods", "events", "sandboxenvs", "sandboxpools", "configmaps"} {
		objects, err := atoll.Cluster(cluster).Kubectl(t.Context(), "get", kind, "-A", "-o", "yaml")
		if err != nil || strings.Contains(objects, secretCanary) {
			t.Errorf("%s has the value of a Secret, or cannot be read: %v", kind, err)
		}
	}
	for _, dir := range []string{logs, atoll.HubData()} {
		must.Succeed(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			if bytes.Contains(text, []byte(secretCanary)) {
				t.Errorf("%s has the value of a Secret", path)
			}
			return err
		}))
	}
}
