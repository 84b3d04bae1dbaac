// SPDX-License-Identifier: Apache-2.0

// Package e2b_test is a federation as E2B clients see it, with real processes and files in its sandboxes (plane.Options.Sandboxd). With the
// build tag node, the stock npm package is the client (tools/e2b-client).
package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/envd"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/e2b/wire"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/e2b"
)

const (
	cluster = "east"
	domain  = "atoll.test" // of sandboxes' ports
)

var (
	atoll  *stack.Stack
	origin string // of the gateway
	apiKey string // in E2B's form
	bearer string // the same key
	canary = "canary-7f3a9c"
	logs   string

	programs string            // folder of them
	tokens   map[string]string // API keys by their names: all, and red and blue, which are of teams
)

var env = stack.Env{
	Name: "python", Image: "registry.example/python", Port: envd.Port, Members: []stack.Member{{Cluster: cluster, Replicas: 3}},
}

// delivered has an image that knows nothing of the daemon, and a command.
var delivered = stack.Env{
	Name: "plain", Image: "registry.example/plain", Runtime: "e2b", Port: envd.Port, Members: []stack.Member{{Cluster: cluster, Replicas: 2}},
	Pod: []func(*corev1.PodSpec){func(pod *corev1.PodSpec) {
		pod.Containers[0].Command, pod.Containers[0].Args = []string{"sh", "-c"}, []string{`echo "$0" > command && exec sleep 1000`, "started"}
	}},
}

// reset has Pods that serve one sandbox after the other. Their image brings the daemon, as its command says.
var reset = stack.Env{
	Name: "reset", Image: "registry.example/idle", Runtime: "e2b", Port: envd.Port, Members: []stack.Member{{Cluster: cluster, Replicas: 1}},
	AllowedImages: "registry.example/tenant",
	Pod: []func(*corev1.PodSpec){stack.ClosedPod, func(pod *corev1.PodSpec) {
		pod.Containers[0].Command = []string{"/usr/bin/atoll-sandboxd"}
	}},
}

func TestMain(m *testing.M) {
	stack.RunSuite("e2b", func(ctx context.Context, dir, logDir string) (code int, err error) {
		logs = logDir
		bin := filepath.Join(dir, "bin")
		if err := stack.Build(ctx, bin, false); err != nil {
			return 1, err
		}
		set, err := plane.Up(ctx, plane.Options{LogDir: filepath.Join(dir, "planes"), Sandboxd: filepath.Join(bin, "atoll-sandboxd")}, cluster)
		if err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, set.Down(ctx)) }()
		programs = bin
		var file string
		if file, tokens, err = stack.APIKeys(ctx, bin, dir, map[string]string{
			"all": "--all --scopes=admin", "red": "--team=red --namespaces=default", "blue": "--team=blue --namespaces=default",
		}); err != nil {
			return 1, err
		}
		bearer = tokens["all"]
		if apiKey, err = e2b.ClientKey(bearer); err != nil {
			return 1, err
		}
		if atoll, err = stack.Start(ctx, set, stack.Options{
			BinDir: bin, LogDir: logDir, Log: os.Stderr, TokenFile: filepath.Join(dir, "all.token"),
			E2B:        true,
			HubArgs:    []string{"--api-keys-file=" + file, "--e2b-domain=" + domain, "--e2b-build-env=" + reset.Name},
			WorkerArgs: []string{"--sandboxd-image=registry.example/atoll-sandboxd:v1", "--sandbox-secrets=default/llm-*"},
		}); err != nil {
			return 1, err
		}
		origin = atoll.E2BURL("")
		for _, e := range []stack.Env{env, delivered, reset} {
			if err := e.Apply(ctx, atoll.Cluster(cluster)); err != nil {
				return 1, errors.Join(err, atoll.Close())
			}
		}
		code = m.Run()
		return code, atoll.Close()
	})
}

// ready waits until the Envs have idle Pods.
func ready(t *testing.T) {
	t.Helper()
	for _, e := range []stack.Env{env, delivered} {
		readyOfAtLeast(t, e, 2)
	}
}

func readyOfAtLeast(t *testing.T, e stack.Env, n int) {
	t.Helper()
	client, err := atoll.HubClient()
	must.Succeed(t, err)
	wait.For(t, time.Minute, "idle Pods", func(ctx context.Context) error {
		idle, err := client.ReadyIdle(ctx, "default", e.Name)
		if err == nil && idle[cluster] < n {
			err = fmt.Errorf("%d of Env %s are idle, want %d", idle[cluster], e.Name, n)
		}
		return err
	})
}

// call makes a request of an E2B client.
func call(t *testing.T, method, path, body string, header ...string) (int, map[string]any) {
	t.Helper()
	client := &wire.Client{Origin: origin, Key: apiKey}
	status, text, err := client.Do(t.Context(), method, path, strings.NewReader(body), header...)
	must.Succeed(t, err)
	out := map[string]any{}
	if json.Unmarshal(text, &out) != nil {
		out["text"] = string(text)
	}
	return status, out
}

// create makes a sandbox, and returns its id and its token.
func create(t *testing.T, path, extra string) (id, token string) {
	t.Helper()
	return createOf(t, env, path, extra)
}

func createOf(t *testing.T, e stack.Env, path, extra string) (id, token string) {
	t.Helper()
	status, out := call(t, http.MethodPost, path, `{"templateID":"`+e.Name+`","timeout":60`+extra+`}`)
	if status != http.StatusCreated {
		t.Fatalf("create: %d %v", status, out)
	}
	id, token = fmt.Sprint(out["sandboxID"]), fmt.Sprint(out["envdAccessToken"])
	t.Cleanup(func() {
		request, _ := http.NewRequestWithContext(context.Background(), http.MethodDelete, origin+"/sandboxes/"+id, nil)
		request.Header.Set("X-API-KEY", apiKey)
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	})
	return id, token
}

// connect returns the token of a sandbox that runs.
func connect(t *testing.T, id string) (token string) {
	t.Helper()
	status, out := call(t, http.MethodPost, "/sandboxes/"+id+"/connect", `{"timeout":60}`)
	if status != http.StatusOK {
		t.Fatalf("connect: %d %v", status, out)
	}
	return fmt.Sprint(out["envdAccessToken"])
}

// run runs a command with a shell, and returns what it printed.
func run(t *testing.T, id, token, command string) (string, error) {
	t.Helper()
	client := &wire.Client{Origin: origin, Key: apiKey}
	return client.Run(t.Context(), &wire.Sandbox{ID: id, Token: token}, command)
}

func TestASandboxRunsCommandsWithItsEnvironment(t *testing.T) {
	ready(t)
	for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
		id, token := create(t, path, `,"envVars":{"SECRET":"`+canary+`"},"metadata":{"a":"b"}`)
		if out, err := run(t, id, token, `echo "got $SECRET"`); err != nil || out != "got "+canary+"\n" {
			t.Errorf("%s: printed %q, %v", path, out, err)
		}
		if status, out := call(t, http.MethodGet, "/sandboxes/"+id, ""); status != http.StatusOK || out["state"] != "running" {
			t.Errorf("%s: details %d %v", path, status, out)
		}
		wantNoCanary(t)
		if status, _ := call(t, http.MethodDelete, "/sandboxes/"+id, ""); status != http.StatusNoContent {
			t.Errorf("kill: %d", status)
		}
		if status, _ := call(t, http.MethodDelete, "/sandboxes/"+id, ""); status != http.StatusNotFound {
			t.Errorf("kill again: %d, want 404", status)
		}
	}
}

// wantNoCanary looks for the environment of a sandbox in the cluster's objects, the logs, and all that the hub keeps, which is not
// encrypted.
func wantNoCanary(t *testing.T) {
	t.Helper()
	wantNowhere(t, canary, []string{"pods", "events", "sandboxenvs", "sandboxpools", "configmaps", "secrets"}, logs, atoll.HubData())
}

// wantNowhere looks for a secret in the cluster's objects of some kinds, and in the files of folders.
func wantNowhere(t *testing.T, secret string, kinds []string, folders ...string) {
	t.Helper()
	for _, kind := range kinds {
		objects, err := atoll.Cluster(cluster).Kubectl(t.Context(), "get", kind, "-A", "-o", "yaml")
		if err != nil || strings.Contains(objects, secret) {
			t.Errorf("%s have %q, or cannot be read: %v", kind, secret, err)
		}
	}
	searched := 0
	for _, dir := range folders {
		must.Succeed(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			searched++
			text, err := os.ReadFile(path)
			if stack.Holds(text, secret) {
				t.Errorf("%s has %q", path, secret)
			}
			return err
		}))
	}
	if searched < 4 {
		t.Errorf("only %d files were searched", searched)
	}
}

// A template that lists the runtime e2b has the daemon in any image: its Pods get it.
func TestThePodGetsTheDaemon(t *testing.T) {
	ready(t)
	id, token := createOf(t, delivered, "/sandboxes", `,"envVars":{"A":"of the claim"}`)
	if out, err := run(t, id, token, `echo "$A"; cat command`); err != nil || out != "of the claim\nstarted\n" {
		t.Errorf("printed %q, %v; the command of the template has run before", out, err)
	}
	header := []string{"E2b-Sandbox-Id", id, "X-Access-Token", token, "Content-Type", "application/octet-stream"}
	if status, out := call(t, http.MethodPost, "/files?path=a/b", "text", header...); status != http.StatusOK {
		t.Errorf("writing a file: %d %v", status, out)
	}
	if status, out := call(t, http.MethodGet, "/files?path=a/b", "", header[:4]...); status != http.StatusOK || out["text"] != "text" {
		t.Errorf("reading it: %d %v", status, out)
	}
	pods, err := atoll.Cluster(cluster).Kubectl(t.Context(), "get", "pods", "-A", "-l", v1alpha1.SandboxIDLabelKey+"="+id, "-o",
		"jsonpath={.items[*].spec.initContainers[*].image}")
	if err != nil || pods != "registry.example/atoll-sandboxd:v1" {
		t.Errorf("its Pod has init containers of %q, %v", pods, err)
	}
}

// public makes a call of the hub's own API.
func public(t *testing.T, method, path, body string) (int, map[string]any) {
	t.Helper()
	return ask(t, atoll.HubEndpoint().URL(), bearer, method, path, body)
}

// ask makes a call of the public API of hub or worker; without a token, of one that asks for none.
func ask(t *testing.T, root, token, method, path, body string) (int, map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, root+path, strings.NewReader(body))
	must.Succeed(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	defer response.Body.Close()
	out := map[string]any{}
	must.Succeed(t, json.NewDecoder(response.Body).Decode(&out))
	return response.StatusCode, out
}

// The environment of a claim of the hub's own API is in the processes of its sandbox, which was warm, and a repeated call sets its own.
func TestAClaimsEnvironment(t *testing.T) {
	ready(t)
	const key = `,"claimKey":"environment","envVars":{`
	status, made := public(t, http.MethodPost, "/v1/sandboxes", `{"env":"plain"`+key+`"A":"`+canary+`","B":"b"}}`)
	if status != http.StatusOK || made["phase"] != "RUNNING" || strings.Contains(fmt.Sprint(made), canary) {
		t.Fatalf("create: %d %v", status, made)
	}
	id := fmt.Sprint(made["id"])
	defer public(t, http.MethodDelete, "/v1/sandboxes/"+id, "")
	if out, err := run(t, id, connect(t, id), `echo "$A $B"`); err != nil || out != canary+" b\n" {
		t.Errorf("printed %q, %v", out, err)
	}
	wantNoCanary(t)
	status, again := public(t, http.MethodPost, "/v1/sandboxes", `{"env":"plain"`+key+`"A":"two"}}`)
	if status != http.StatusOK || again["id"] != id {
		t.Fatalf("again: %d %v", status, again)
	}
	if out, err := run(t, id, connect(t, id), `echo "$A $B"`); err != nil || out != "two b\n" {
		t.Errorf("after a repeated call it printed %q, %v", out, err)
	}
	status, refused := public(t, http.MethodPost, "/v1/sandboxes", `{"env":"python","user":"ben","envVars":{"A":"`+canary+`"}}`)
	if status != http.StatusBadRequest || refused["reason"] != "INVALID" || !strings.Contains(fmt.Sprint(refused["errors"]), "envVars") ||
		strings.Contains(fmt.Sprint(refused), canary) {
		t.Errorf("where no template has the daemon: %d %v", status, refused)
	}
	_, left := public(t, http.MethodGet, "/v1/sandboxes?user=ben&phase=RUNNING", "")
	if len(left) > 0 && fmt.Sprint(left["sandboxes"]) != "[]" {
		t.Errorf("the refused claim's sandbox is left: %v", left)
	}
	wantNoCanary(t)
}

// A daemon ends with its sandbox: in a Pod that is used again, the next one's is new, and takes the next sandbox's token.
func TestI13ADaemonOutlivesNoSandbox(t *testing.T) {
	readyOfAtLeast(t, reset, 1)
	pods := map[string]bool{}
	for i := range 2 {
		status, made := public(t, http.MethodPost, "/v1/sandboxes",
			fmt.Sprintf(`{"env":"reset","image":"registry.example/tenant","startupTimeout":"60s","envVars":{"V%d":"%s"}}`, i, canary))
		if status != http.StatusOK {
			t.Fatalf("create %d: %d %v", i, status, made)
		}
		pods[fmt.Sprint(made["pod"])] = true
		id := fmt.Sprint(made["id"])
		if printed, err := run(t, id, connect(t, id), `echo "$V0,$V1"`); err != nil ||
			printed != []string{canary + ",\n", "," + canary + "\n"}[i] {
			t.Errorf("sandbox %d printed %q, %v", i, printed, err)
		}
		if status, out := public(t, http.MethodDelete, "/v1/sandboxes/"+id, ""); status != http.StatusOK {
			t.Fatalf("release %d: %d %v", i, status, out)
		}
	}
	if len(pods) != 1 {
		t.Errorf("the sandboxes had Pods %v, want one after the other", pods)
	}
}

func TestI14ATokenOpensOneSandbox(t *testing.T) {
	ready(t)
	one, tokenOfOne := create(t, "/sandboxes", "")
	two, _ := create(t, "/sandboxes", "")
	for _, token := range []string{tokenOfOne, "", "x", apiKey, strings.Repeat("A", 100)} {
		if status, out := call(t, http.MethodGet, "/metrics", "", "E2b-Sandbox-Id", two, "X-Access-Token",
			token); status != http.StatusUnauthorized {
			t.Errorf("token %q: %d %v, want 401", token, status, out)
		}
	}
	if status, out := call(t, http.MethodGet, "/metrics", "", "E2b-Sandbox-Id", one, "X-Access-Token", tokenOfOne); status != http.StatusOK {
		t.Errorf("its own token: %d %v", status, out)
	}
}

// A caller with a token is not held to the pace of strangers.
func TestFilesOfManyMegabytes(t *testing.T) {
	ready(t)
	id, token := create(t, "/sandboxes", "")
	want := bytes.Repeat([]byte("0123456789abcdef"), 2<<20)
	path := "/files?username=root&path=" + url.QueryEscape(filepath.Join(t.TempDir(), "large"))
	var form bytes.Buffer
	writer := multipart.NewWriter(&form)
	part, err := writer.CreateFormFile("file", "large")
	if err == nil {
		_, err = part.Write(want)
	}
	must.Succeed(t, errors.Join(err, writer.Close()))
	began := time.Now()
	header := []string{"E2b-Sandbox-Id", id, "X-Access-Token", token, "Content-Type", writer.FormDataContentType()}
	if status, out := call(t, http.MethodPost, path, form.String(), header...); status != http.StatusOK {
		t.Fatalf("write: %d %v after %s", status, out, time.Since(began))
	}
	t.Logf("wrote %d MiB in %s", len(want)>>20, time.Since(began))
	if status, out := call(t, http.MethodGet, path, "", header[:4]...); status != http.StatusOK || out["text"] != string(want) {
		t.Errorf("read: %d, %d bytes, want %d", status, len(fmt.Sprint(out["text"])), len(want))
	}
}

func TestWhatIsRefused(t *testing.T) {
	for _, row := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodPost, "/sandboxes", `{`, http.StatusBadRequest},
		{http.MethodPost, "/sandboxes", `{}`, http.StatusBadRequest},
		{http.MethodPost, "/sandboxes", `{"templateID":"none"}`, http.StatusNotFound},
		{http.MethodPost, "/sandboxes", `{"templateID":"python","timeout":0}`, http.StatusBadRequest},
		{http.MethodPost, "/sandboxes", `{"templateID":"python","envVars":{"A=B":""}}`, http.StatusBadRequest},
		{http.MethodPost, "/sandboxes", `{"templateID":"python","autoPause":true}`, http.StatusNotImplemented},
		{http.MethodPost, "/sandboxes", `{"templateID":"python","allow_internet_access":false}`, http.StatusUnprocessableEntity},
		{http.MethodPost, "/sandboxes", `{"templateID":"python","network":{"denyOut":["0.0.0.0/0"]}}`, http.StatusUnprocessableEntity},
		{http.MethodPost, "/sandboxes", `{"templateID":"python","network":{"denyOut":["192.0.2.0/24"]}}`, http.StatusNotImplemented},
		{http.MethodPost, "/sandboxes", `{"templateID":"python","network":{"allowPublicTraffic":true}}`, http.StatusNotImplemented},
		{http.MethodPost, "/sandboxes", `{"templateID":"none","network":{"allowPublicTraffic":false}}`, http.StatusNotFound},
		{http.MethodPost, "/sandboxes", `{"templateID":"python","volumeMounts":[{"name":"v","path":"/v"}]}`, http.StatusNotImplemented},
		{http.MethodPost, "/sandboxes", `{"templateID":"python","mcp":{"a":{}}}`, http.StatusNotImplemented},
		{http.MethodPost, "/sandboxes", `{"templateID":"python","iam":{"a":{}}}`, http.StatusNotImplemented},
		{http.MethodPost, "/sandboxes/x/snapshots", `{}`, http.StatusNotImplemented},
		{http.MethodPost, "/sandboxes/x/fork", `{}`, http.StatusNotImplemented},
		{http.MethodPut, "/sandboxes/x/network", `{}`, http.StatusNotImplemented},
		{http.MethodGet, "/snapshots", "", http.StatusNotImplemented},
		{http.MethodPost, "/volumes", `{}`, http.StatusNotImplemented},
		{http.MethodGet, "/volumes/v", "", http.StatusNotImplemented},
		{http.MethodPost, "/secrets", `{}`, http.StatusNotImplemented},
		{http.MethodGet, "/sandboxes?limit=1000", "", http.StatusBadRequest},
		{http.MethodGet, "/sandboxes/..%2f..%2fkeys", "", http.StatusNotFound},
		{http.MethodGet, "/sandboxes/x/metrics", "", http.StatusNotImplemented},
		{http.MethodGet, "/v3/templates", "", http.StatusNotImplemented},
		{http.MethodGet, "/v1/sandboxes", "", http.StatusNotFound},
	} {
		status, out := call(t, row.method, row.path, row.body)
		if status != row.want || out["message"] == nil || out["code"] != float64(row.want) {
			t.Errorf("%s %s %s: %d %v, want %d with code and message", row.method, row.path, row.body, status, out, row.want)
		}
	}
	if status, _ := call(t, http.MethodGet, "/sandboxes", "", "X-API-KEY", "e2b_00"); status != http.StatusUnauthorized {
		t.Errorf("an unknown key: %d, want 401", status)
	}
}
