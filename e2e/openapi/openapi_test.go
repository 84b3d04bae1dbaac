// SPDX-License-Identifier: Apache-2.0

// Package openapi_test holds the OpenAPI document against a hub and a worker that run: every operation of it is called, is built, and a
// stock validator (tools/openapi) finds each request and response as the document has them. With the build tag node, a client that a stock
// generator made from the document calls the hub (tools/openapi-client).
package openapi_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const cluster = "east"

var (
	atoll  *stack.Stack
	tokens map[string]string // by key: all, and look, which may only do that
)

func TestMain(m *testing.M) {
	stack.RunSuite("openapi", func(ctx context.Context, dir, logDir string) (code int, err error) {
		bin := filepath.Join(dir, "bin")
		if err := stack.Build(ctx, bin, false); err != nil {
			return 1, err
		}
		set, err := plane.Up(ctx, plane.Options{
			LogDir: filepath.Join(dir, "planes"), Sandboxd: filepath.Join(bin, "atoll-sandboxd"),
		}, cluster)
		if err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, set.Down(ctx)) }()
		var keys string
		if keys, tokens, err = stack.APIKeys(ctx, bin, dir, map[string]string{
			"all": "--all --scopes=admin", "look": "--all --scopes=read",
		}); err != nil {
			return 1, err
		}
		if atoll, err = stack.Start(ctx, set, stack.Options{
			BinDir: bin, LogDir: logDir, Log: os.Stderr, Invited: true, HubArgs: []string{"--api-keys-file=" + keys},
			TokenFile: filepath.Join(dir, "all.token"),
		}); err != nil {
			return 1, err
		}
		python := stack.Env{
			Name: "python", Image: "registry.example/python", Port: 8000, Members: []stack.Member{{Cluster: cluster, Replicas: 2}},
		}
		if err := python.Apply(ctx, atoll.Cluster(cluster)); err != nil {
			return 1, errors.Join(err, atoll.Close())
		}
		code = m.Run()
		return code, atoll.Close()
	})
}

// exchange is a request and its response, as tools/openapi reads them.
type exchange struct {
	Method         string      `json:"method"`
	URL            string      `json:"url"`
	RequestHeader  http.Header `json:"requestHeader"`
	RequestBody    string      `json:"requestBody"`
	Status         int         `json:"status"`
	ResponseHeader http.Header `json:"responseHeader"`
	ResponseBody   string      `json:"responseBody"`
}

// direct follows no redirects.
var direct = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// recorder calls a server and keeps what it said.
type recorder struct {
	t         *testing.T
	root      string
	token     string
	exchanges []exchange
}

// call fails the test unless the status is the wanted one. What it returns of a body that is no JSON is empty.
func (r *recorder) call(want int, method, path, body string, header ...string) (got reply) {
	r.t.Helper()
	request := r.request(r.t.Context(), method, path, body)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := direct.Do(request)
	must.Succeed(r.t, err)
	defer response.Body.Close()
	text := must.Read(r.t, response.Body)
	if response.StatusCode != want {
		r.t.Fatalf("%s %s: %d, want %d: %s", method, path, response.StatusCode, want, text)
	}
	r.add(request, body, response, string(text))
	_ = json.Unmarshal(text, &got)
	return got
}

// request is one with the recorder's key, if it has one.
func (r *recorder) request(ctx context.Context, method, path, body string) *http.Request {
	r.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, r.root+path, strings.NewReader(body))
	must.Succeed(r.t, err)
	if r.token != "" {
		request.Header.Set("Authorization", "Bearer "+r.token)
	}
	return request
}

func (r *recorder) add(request *http.Request, body string, response *http.Response, text string) {
	r.exchanges = append(r.exchanges, exchange{
		Method: request.Method, URL: request.URL.String(), RequestHeader: request.Header, RequestBody: body,
		Status: response.StatusCode, ResponseHeader: response.Header, ResponseBody: text,
	})
}

// upgrade opens a WebSocket.
func (r *recorder) upgrade(path, protocol string) {
	r.t.Helper()
	request := r.request(r.t.Context(), http.MethodGet, path, "")
	dialer := websocket.Dialer{Subprotocols: []string{protocol}, HandshakeTimeout: time.Minute}
	conn, response, err := dialer.DialContext( //nolint:bodyclose // the connection has it
		r.t.Context(), "ws"+strings.TrimPrefix(r.root, "http")+path, request.Header)
	if err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
	defer conn.Close()
	request.Header.Set("Upgrade", "websocket")
	request.Header.Set("Sec-WebSocket-Protocol", protocol)
	r.add(request, "", response, "")
}

// reply is the part of a response that the test reads.
type reply struct {
	ID        string `json:"id"`
	Reason    string `json:"reason"` // of a problem
	Detail    string `json:"detail"`
	Sandboxes []struct {
		ID    string `json:"id"`
		PodIP string `json:"podIp"`
	} `json:"sandboxes"`
	Tags []struct {
		Name string `json:"name"`
	} `json:"tags"`
	Paths map[string]map[string]struct {
		OperationID string   `json:"operationId"`
		Tags        []string `json:"tags"`
	} `json:"paths"`
}

func TestTheHubDoesWhatTheDocumentSays(t *testing.T) {
	r := &recorder{t: t, root: atoll.HubEndpoint().URL(), token: tokens["all"]}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	document := r.call(200, "GET", "/openapi.json", "")
	ready(t)
	id := callSandboxes(r)
	callLists(r)
	callRefused(t, r)
	r.call(200, "GET", "/healthz", "")
	r.call(200, "DELETE", "/v1/sandboxes/"+id, "")
	r.call(200, "DELETE", "/v1/claims/first", "")
	r.call(200, "GET", "/v1/envs?namespace=default&clusterId=east&pageSize=10", "")
	r.call(404, "GET", "/v1/envs?clusterId=mars", "")
	r.call(200, "GET", "/v1/envs/default/python", "")
	r.call(200, "POST", "/v1/envs/default/python:explain", `{"request": {"image": "registry.example/other"}}`)
	r.call(200, "POST", "/v1/envs/default/python:refresh", `{"dryRun": true}`)
	r.call(200, "GET", "/v1/hub", "")
	r.call(200, "POST", "/v1/hub:acceptLoss", "{}")
	r.call(200, "GET", "/v1/clusters", "")
	r.call(200, "GET", "/v1/clusters/east", "")
	r.call(200, "POST", "/v1/clusters/east:drain", "{}")
	r.call(400, "POST", "/v1/clusters/east:undrain", `{"successor": "yes"}`)
	r.call(200, "POST", "/v1/clusters/east:undrain", "{}")
	r.call(404, "POST", "/v1/clusters/nowhere:forget", "{}")
	r.call(200, "GET", "/v1/replicas", "")
	callAccess(r)
	callJoining(r)
	callCatalogue(r)
	calledAll(t, document, r.exchanges)
	noneUnbuilt(t, document, r)
	validated(t, r)
}

// callCatalogue puts, shows, plans, rolls out, imports and deletes an Env and its template.
func callCatalogue(r *recorder) {
	const (
		template = `{"apiVersion": "agents.navix.sh/v1alpha1", "kind": "SandboxTemplate", "metadata": {"name": "shell"}, "spec": {
			"version": "v1.0.0", "template": {"spec": {"containers": [{"name": "main", "image": "registry.example/shell"}]}},
			"runtimes": [{"name": "http", "port": 8000}]}}`
		env = `{"apiVersion": "agents.navix.sh/v1alpha1", "kind": "SandboxEnv", "metadata": {"name": "shell", "namespace": "default",
			"annotations": {"agentbox.navix.sh/rollout": "{stages: [[east]], onFailure: pause}"}},
			"spec": {"mode": "WarmPool", "templateRef": {"name": "shell"}, "clusters": [{"clusterID": "east", "members": [{"name": "shell-east",
			"spec": {"replicas": 0}, "config": {"inlineResources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}}]}]}}`
		at = "/v1/envs/default/shell"
	)
	r.call(200, "PUT", "/v1/templates/shell", template)
	r.call(400, "PUT", "/v1/templates/shell", `{"kind": "SandboxTemplate"}`)
	r.call(200, "GET", "/v1/templates", "")
	r.call(200, "GET", "/v1/templates/shell", "")
	r.call(404, "GET", "/v1/templates/nowhere", "")
	r.call(200, "POST", "/v1/templates/shell:plan", template)
	r.call(200, "GET", "/v1/templates/shell/revisions", "")
	r.call(200, "PUT", at, env)
	r.call(400, "PUT", at, `{"spec": {"mode": "Hot"}}`)
	r.call(200, "POST", at+":plan", env)
	r.call(200, "GET", at+"/revisions", "")
	r.call(404, "GET", at+"/rollout", "")
	r.call(200, "PUT", at, strings.Replace(env, `"replicas": 0`, `"replicas": 1`, 1))
	r.call(200, "GET", at+"/rollout", "")
	r.call(200, "POST", at+"/rollout", `{"action": "UNDO"}`)
	r.call(400, "POST", at+"/rollout", "{}")
	r.call(200, "POST", "/v1/envs/default/python:import", `{"dryRun": true}`)
	r.call(200, "DELETE", at, "")
	r.call(200, "DELETE", "/v1/templates/shell", "")
}

// callAccess makes, shows, rotates and revokes a key, and reads and writes the policy.
func callAccess(r *recorder) {
	r.call(200, "POST", "/v1/keys", `{"name": "ci", "team": "search", "namespaces": ["default"], "scopes": ["claim"], "validFor": "24h"}`)
	r.call(400, "POST", "/v1/keys", `{"name": "Not A Name"}`)
	r.call(200, "GET", "/v1/keys", "")
	r.call(200, "POST", "/v1/keys/ci:rotate", `{"overlap": "60s"}`)
	r.call(200, "DELETE", "/v1/keys/ci", "")
	r.call(404, "DELETE", "/v1/keys/ci", "")
	r.call(200, "GET", "/v1/access?builtIn=true", "")
	r.call(200, "PUT", "/v1/access", `{"roles": [{"name": "reader", "rules": [{"resources": ["envs"], "verbs": ["get", "list"]}]}]}`)
	r.call(200, "POST", "/v1/access:check", `{"verb": "create", "resource": "sandboxes", "namespace": "default"}`)
	r.call(200, "GET", "/v1/quotas", "")
}

// callJoining invites, bounds and revokes clusters. The hub has a CA beside its certificate from files.
func callJoining(r *recorder) {
	r.call(200, "POST", "/v1/clusters:invite", `{"id": "mars", "ttl": "60s"}`)
	r.call(400, "POST", "/v1/clusters:invite", `{"id": "Mars"}`)
	r.call(404, "POST", "/v1/clusters/nowhere:approve", "{}")
	r.call(200, "PATCH", "/v1/clusters/east", `{"scope": {"namespaces": ["default"]}}`)
	r.call(404, "POST", "/v1/clusters/nowhere:revoke", "{}")
	r.call(200, "GET", "/v1/pki", "")
	r.call(200, "POST", "/v1/pki:rotate", "{}")
}

// A worker's document has only what it serves, and that is as it says.
func TestAWorkerDoesWhatItsDocumentSays(t *testing.T) {
	r := &recorder{t: t, root: atoll.WorkerEndpoint(cluster).URL()}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	document := r.call(200, "GET", "/openapi.json", "")
	ready(t)
	id := r.call(200, "POST", "/v1/sandboxes", `{"env": "python", "claimKey": "here"}`).ID
	r.call(200, "GET", "/v1/sandboxes/"+id, "")
	r.call(200, "GET", "/v1/sandboxes", "")
	callLists(r)
	r.call(200, "GET", "/v1/claims/here", "")
	r.call(200, "GET", "/v1/envs", "")
	r.call(200, "GET", "/v1/envs/default/python", "")
	r.call(200, "POST", "/v1/envs/default/python:explain", "{}")
	r.call(501, "POST", "/v1/envs/default/python:explain", `{"claimKey": "here"}`)
	r.call(404, "GET", "/v1/sandboxes/01arz3ndektsv4rrffq69g5fav-east", "")
	r.call(200, "DELETE", "/v1/sandboxes/"+id, "")
	for path, operations := range document.Paths {
		for verb, operation := range operations {
			if !slices.ContainsFunc(operation.Tags, func(tag string) bool {
				return slices.Contains([]string{"Sandboxes", "Claims", "Envs", "Server"}, tag)
			}) {
				t.Errorf("%s %s is in a worker's document", verb, path)
			}
		}
	}
	noneUnbuilt(t, document, r)
	leftOut(t, document, r)
	validated(t, r)
}

func ready(t *testing.T) {
	t.Helper()
	client, err := atoll.HubClient()
	must.Succeed(t, err)
	wait.For(t, 2*time.Minute, "two idle Pods", func(ctx context.Context) error {
		idle, err := client.ReadyIdle(ctx, "default", "python")
		if err != nil {
			return err
		}
		return wait.If(idle[cluster] == 2, idle)
	})
}

// callSandboxes calls what concerns a sandbox that runs, and returns its id.
func callSandboxes(r *recorder) string {
	id := r.call(200, "POST", "/v1/sandboxes", `{"env": "python", "user": "ada", "labels": {"a": "b"}, "idleTimeout": "10m"}`,
		"Idempotency-Key", "first").ID
	at := "/v1/sandboxes/" + id
	r.call(200, "GET", at, "")
	r.call(200, "GET", "/v1/sandboxes?env=python&phase=RUNNING&pageSize=5", "")
	r.call(200, "GET", "/v1/claims/first?namespace=default", "")
	r.call(200, "PATCH", at, `{"idleTimeout": "3600s"}`)
	r.call(200, "POST", at+":touch", "{}")
	r.call(200, "POST", at+":pause", "{}")
	r.call(200, "POST", at+":resume", "{}")
	r.call(200, "GET", at+"/logs?tail=5", "")
	r.upgrade(at+"/exec?command=true", "v5.channel.k8s.io")
	r.call(400, "GET", at+"/exec?command=true", "")
	r.call(308, "GET", at+"/ports/8000", "")
	for _, verb := range []string{"GET", "HEAD", "OPTIONS", "DELETE", "POST", "PUT", "PATCH"} {
		r.call(503, verb, at+"/ports/9/path", "")
	}
	callFiles(r, at)
	return id
}

// callFiles calls what the sandbox's daemon serves.
func callFiles(r *recorder, at string) {
	r.call(200, "PUT", at+"/files?path=dir/a", `{"any": "bytes"}`)
	r.call(200, "GET", at+"/files?path=dir/a", "")
	r.call(206, "GET", at+"/files?path=dir/a", "", "Range", "bytes=0-3")
	r.call(416, "GET", at+"/files?path=dir/a", "", "Range", "bytes=99-")
	r.call(404, "GET", at+"/files?path=dir/none", "")
	r.call(400, "GET", at+"/files?path=", "")
	r.call(200, "GET", at+"/files:stat?path=dir", "")
	r.call(200, "GET", at+"/files:list?path=dir&depth=2", "")
	r.call(400, "GET", at+"/files:list?path=dir&depth=99", "")
	r.call(200, "POST", at+"/files:mkdir", `{"path": "dir/b"}`)
	r.call(200, "POST", at+"/files:move", `{"from": "dir/a", "to": "dir/b/a"}`)
	r.call(200, "GET", at+"/files:archive?path=dir", "")
	archive := r.exchanges[len(r.exchanges)-1].ResponseBody
	r.call(200, "PUT", at+"/files:archive?path=copy", archive, "Content-Type", "application/x-tar")
	r.call(400, "GET", at+"/files:archive?path=dir/b/a", "")
	r.call(404, "GET", at+"/files:archive?path=none", "")
	r.call(204, "DELETE", at+"/files?path=dir", "")
	r.call(200, "POST", at+"/processes", `{"command": ["sh", "-c", "echo out; exit 3"], "envVars": {"A": "b"}, "timeout": "30s"}`)
	r.call(200, "POST", at+"/processes", `{"command": ["sleep", "100"], "timeout": "0.2s"}`)
	r.call(200, "POST", at+"/processes", `{"command": ["echo", "out"]}`, "Accept", "text/event-stream")
	r.call(400, "POST", at+"/processes", `{"command": []}`)
	r.call(200, "GET", at+"/processes", "")
	r.call(404, "POST", at+"/processes/1:signal", `{"signal": "SIGTERM"}`)
}

// events watches until an event is the last, keeps the exchange, and returns the last event's token.
func (r *recorder) events(path string, last string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	request := r.request(ctx, http.MethodGet, path, "")
	response, err := direct.Do(request)
	must.Succeed(r.t, err)
	defer response.Body.Close()
	var text strings.Builder
	name, token := "", ""
	lines := bufio.NewScanner(io.LimitReader(response.Body, 1<<20))
	for (name != last || lines.Text() != "") && lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
		case "id":
			token = value
		case "event":
			name = value
		}
	}
	if response.StatusCode != http.StatusOK || name != last || lines.Text() != "" {
		r.t.Fatalf("%s: %d, want events up to %s: %s, %v", path, response.StatusCode, last, &text, lines.Err())
	}
	r.add(request, "", response, text.String())
	return token
}

// callLists calls what shows some fields, and what changes.
func callLists(r *recorder) {
	const some = "/v1/sandboxes?env=python&readMask=id,phase,runtimes,pause.state"
	got := r.call(200, "GET", some, "")
	if len(got.Sandboxes) != 1 || got.Sandboxes[0].ID == "" || got.Sandboxes[0].PodIP != "" {
		r.t.Errorf("with %s: %+v", some, got)
	}
	if none := r.call(200, "GET", some+"&labelSelector=none", ""); none.Sandboxes == nil {
		r.t.Error("an empty list with readMask has no sandboxes: []")
	}
	r.call(400, "GET", some+",phse", "")
	watch := "/v1/sandboxes?env=python&watch=true"
	token := r.events(watch, "BOOKMARK")
	r.events(watch+"&readMask=id&resumeToken="+token, "BOOKMARK")
	r.call(400, "GET", watch+"&clusterId=east&resumeToken="+token, "")
	old, err := base64.RawURLEncoding.DecodeString(token)
	must.Succeed(r.t, err)
	old[copyAt] ^= 1
	r.call(410, "GET", watch+"&resumeToken="+base64.RawURLEncoding.EncodeToString(old), "")
}

// copyAt is where a resume token names the server's copy, another one after each restart.
const copyAt = 9

// callRefused calls what fails, with every status that a caller can bring about.
func callRefused(t *testing.T, r *recorder) {
	t.Helper()
	stranger := &recorder{t: t, root: r.root}
	stranger.call(401, "GET", "/v1/sandboxes", "")
	looks := &recorder{t: t, root: r.root, token: tokens["look"]}
	looks.call(403, "POST", "/v1/sandboxes", `{"env": "python"}`)
	r.call(400, "POST", "/v1/sandboxes", `{"env": "", "multiplier": -1}`, "Idempotency-Key", "bad")
	r.call(400, "GET", "/v1/sandboxes?cluster=west", "")
	r.call(404, "POST", "/v1/sandboxes", `{"env": "no-such-env"}`)
	r.call(404, "GET", "/v1/sandboxes/01arz3ndektsv4rrffq69g5fav-east", "")
	r.call(404, "GET", "/v1/claims/unheard-of", "")
	r.call(409, "POST", "/v1/sandboxes", `{"env": "python", "user": "bob"}`, "Idempotency-Key", "first")
	r.call(422, "POST", "/v1/sandboxes", `{"env": "python", "instanceType": "c9.huge"}`)
	second := r.call(200, "POST", "/v1/sandboxes", `{"env": "python"}`, "Idempotency-Key", "second").ID
	r.call(503, "POST", "/v1/sandboxes", `{"env": "python", "noQueue": true}`)
	for _, header := range [][]string{nil, {"Idempotency-Key", "late"}} {
		late := r.call(504, "POST", "/v1/sandboxes", `{"env": "python", "startupTimeout": "0.2s"}`, header...)
		if late.Reason != "DEADLINE" || !strings.Contains(late.Detail, "became idle") {
			t.Errorf("a claim that has waited for its startupTimeout, header %q: %s: %q, want DEADLINE and what it waited for",
				header, late.Reason, late.Detail)
		}
	}
	r.call(200, "DELETE", "/v1/sandboxes/"+second, "")
	r.exchanges = slices.Concat(r.exchanges, stranger.exchanges, looks.exchanges)
}

// calledAll fails the test for an operation that the document has and no exchange.
func calledAll(t *testing.T, document reply, exchanges []exchange) {
	t.Helper()
	for path, operations := range document.Paths {
		for verb, operation := range operations {
			if !slices.ContainsFunc(exchanges, func(e exchange) bool { return strings.EqualFold(e.Method, verb) && fits(path, e.URL) }) {
				t.Errorf("%s (%s %s) is in the document and was not called", operation.OperationID, verb, path)
			}
		}
	}
}

// fits tells whether a path of the document is that of a URL.
func fits(path, url string) bool {
	_, at, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	at, _, _ = strings.Cut(at, "?")
	want, got := strings.Split(path[1:], "/"), strings.Split(at, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		name, verb, _ := strings.Cut(want[i], ":")
		value, gotVerb, _ := strings.Cut(got[i], ":")
		if verb != gotVerb || name != value && !strings.HasPrefix(name, "{") {
			return false
		}
	}
	return true
}

// noneUnbuilt fails the test for a call that the document has and that is not built.
func noneUnbuilt(t *testing.T, document reply, r *recorder) {
	t.Helper()
	for _, e := range r.exchanges {
		if e.Status == http.StatusNotImplemented && !strings.Contains(e.URL, ":explain") {
			t.Errorf("%s %s is in the document and is not built: %s", e.Method, e.URL, e.ResponseBody)
		}
	}
	for _, tag := range document.Tags {
		if slices.Contains([]string{"Link", "History", "Replicas"}, tag.Name) {
			t.Errorf("the document has the tag %s", tag.Name)
		}
	}
}

// leftOut calls the catalogue, which a worker's document leaves out.
func leftOut(t *testing.T, document reply, r *recorder) {
	t.Helper()
	left := &recorder{t: t, root: r.root, token: r.token}
	for _, call := range [][3]string{
		{"PUT", "/v1/envs/default/x", "{}"}, {"DELETE", "/v1/envs/default/x", ""}, {"POST", "/v1/envs/default/x:plan", "{}"},
		{"GET", "/v1/templates/x", ""}, {"PUT", "/v1/templates/x", "{}"}, {"DELETE", "/v1/templates/x", ""},
	} {
		left.call(501, call[0], call[1], call[2])
		for path, operations := range document.Paths {
			if _, known := operations[strings.ToLower(call[0])]; known && fits(path, left.root+call[1]) {
				t.Errorf("%s %s is not built and is in the document", call[0], call[1])
			}
		}
	}
}

// validated runs the stock validator on what a server says of itself, and on what it did.
func validated(t *testing.T, r *recorder) {
	t.Helper()
	dir := t.TempDir()
	program, document, exchanges := filepath.Join(dir, "openapi"), filepath.Join(dir, "openapi.json"), filepath.Join(dir, "exchanges")
	source := filepath.Join("..", "..", "tools", "openapi")
	for _, file := range []string{"main.go", "go.mod", "go.sum"} { // go runs the test again when one has changed
		_, err := os.ReadFile(filepath.Join(source, file))
		must.Succeed(t, err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-C", source, "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var lines []byte
	for _, e := range r.exchanges {
		if strings.HasSuffix(e.URL, "/openapi.json") {
			must.Succeed(t, os.WriteFile(document, []byte(e.ResponseBody), 0o600))
		}
		line, err := json.Marshal(e)
		must.Succeed(t, err)
		lines = append(append(lines, line...), '\n')
	}
	must.Succeed(t, os.WriteFile(exchanges, lines, 0o600))
	out, err := exec.CommandContext(t.Context(), program, document, exchanges).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
