// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc/codes"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/problem"
)

// canary begins every secret of the walk. A claim key is printable ASCII; the others are whatever their place allows.
const canary = "canary-"

// walk calls the API, each call with a request id of its own.
type walk struct {
	t    *testing.T
	root string
	n    int
	// calls are the changes and refusals that were made, by request id: each has a line of that verb. Other calls have none.
	calls map[string]string
	// talks are requests for files and processes, by request id: each has a connection to the sandbox, which has a line when it begins and
	// when it ends, or uses one of its caller's again.
	talks map[string]string
	// secrets are the tokens that the hub has made.
	secrets []string
}

// newWalk returns a walk of a hub that has idle Pods.
func newWalk(t *testing.T) *walk {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	client, err := atoll.HubClient()
	must.Succeed(t, err)
	wait.For(t, 2*time.Minute, "idle Pods", func(ctx context.Context) error {
		idle, err := client.ReadyIdle(ctx, "default", "python")
		if err == nil && idle[cluster] == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	return &walk{
		t: t, root: atoll.HubEndpoint().URL(), calls: map[string]string{}, talks: map[string]string{},
		secrets: []string{canary, tokens["all"], tokens["look"]},
	}
}

// id returns the request id of the next call. verb is that of its line, empty: it has none.
func (w *walk) id(verb string) string {
	w.n++
	id := fmt.Sprintf("%s-%d", w.t.Name(), w.n)
	switch verb {
	case "":
	case "files", "processes":
		w.talks[id] = verb
	default:
		w.calls[id] = verb
	}
	return id
}

// call makes a REST call. verb is that of its line, empty: it has none.
func (w *walk) call(verb, key, method, path, body string, header ...string) (code int, text string) {
	w.t.Helper()
	id := w.id(verb)
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.root+path, strings.NewReader(body))
	must.Succeed(w.t, err)
	request.Header.Set("Authorization", "Bearer "+tokens[key])
	request.Header.Set("X-Request-Id", id)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	must.Succeed(w.t, err)
	defer response.Body.Close()
	return response.StatusCode, string(must.Read(w.t, response.Body))
}

// ok is call of the key all, which must succeed.
func (w *walk) ok(verb, method, path, body string, header ...string) string {
	w.t.Helper()
	code, text := w.call(verb, "all", method, path, body, header...)
	if code != http.StatusOK && code != http.StatusNoContent {
		w.t.Fatalf("%s %s: %d %s", method, path, code, text)
	}
	return text
}

func idOf(t *testing.T, text string) string {
	t.Helper()
	var s struct {
		ID string `json:"id"`
	}
	must.Succeed(t, json.Unmarshal([]byte(text), &s))
	return s.ID
}

// exec opens a conversation, says something secret, and leaves.
func (w *walk) exec(id string) {
	w.t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{"v5.channel.k8s.io"}, HandshakeTimeout: time.Minute}
	conn, _, err := dialer.DialContext( //nolint:bodyclose // the connection has it
		w.t.Context(), "ws"+strings.TrimPrefix(w.root, "http")+"/v1/sandboxes/"+id+"/exec?stdin=true&stdout=true&command="+canary+"command",
		http.Header{"Authorization": {"Bearer " + tokens["all"]}, "X-Request-Id": {w.id("exec")}})
	must.Succeed(w.t, err)
	must.Succeed(w.t, conn.WriteMessage(websocket.BinaryMessage, append([]byte{0}, canary+"stdin"...)))
	must.Succeed(w.t, conn.Close())
}

// sandboxes walks what concerns sandboxes and claims.
func (w *walk) sandboxes() {
	w.t.Helper()
	request := `{"env":"python","user":"ada","metadata":{"note":"` + canary + `metadata"}}`
	key := []string{"Idempotency-Key", canary + "key"}
	id := idOf(w.t, w.ok("create", "POST", "/v1/sandboxes", request, key...))
	w.ok("create", "POST", "/v1/sandboxes", request, key...)
	w.call("create", "all", "POST", "/v1/sandboxes", `{"env":"python","user":"bob"}`, key...)
	w.call("create", "all", "POST", "/v1/sandboxes", `{"env":"python","claimKey":"`+canary+`ü","metadata":{"a":"`+canary+`bad"}}`)
	w.call("create", "all", "POST", "/v1/sandboxes",
		`{"env":"python","startupTimeout":"5s","postStartHooks":[{"http":{"port":8000,"path":"/",`+
			`"headers":{"X":"`+canary+`header"},"body":"`+canary+`body"}}]}`)
	w.call("create", "look", "POST", "/v1/sandboxes", request, key...)
	w.environment()
	at := "/v1/sandboxes/" + id
	w.ok("", "GET", at, "")
	w.ok("", "GET", "/v1/claims/"+canary+"key", "")
	w.ok("update", "PATCH", at, `{"idleTimeout":"3600s"}`)
	w.ok("", "POST", at+":touch", "{}")
	w.ok("pause", "POST", at+":pause", "{}")
	w.ok("resume", "POST", at+":resume", "{}")
	w.exec(id)
	w.ok("logs", "GET", at+"/logs?tail=5", "")
	w.call("connect", "all", "GET", at+"/ports/9/", "") // nothing listens there
	w.call("release", "look", "DELETE", at, "")
	w.ok("release", "DELETE", at, "")
	w.ok("cancel", "DELETE", "/v1/claims/"+canary+"key", "")
}

// environment gives sandboxes secret variables, and looks for them in all that describes the sandboxes.
func (w *walk) environment() {
	w.t.Helper()
	content := base64.StdEncoding.EncodeToString([]byte(canary + "variable content"))
	variables := `{"env":"python","envVars":{"SECRET":"` + canary + `variable"},"workdir":"/tmp/` + canary + `variable-folder",` +
		`"files":[{"path":"` + canary + `variable-file","content":"` + content + `","mode":"0600"}]`
	id := idOf(w.t, w.ok("create", "POST", "/v1/sandboxes", variables+`}`))
	w.call("create", "all", "POST", "/v1/sandboxes", variables+`,"wait":"ASSIGNED"}`)
	for _, kind := range []string{"pods", "sandboxenvs", "sandboxpools", "configmaps", "secrets"} {
		objects, err := atoll.Cluster(cluster).Kubectl(w.t.Context(), "get", kind, "-A", "-o", "yaml")
		if err != nil || strings.Contains(objects, canary+"variable") || strings.Contains(objects, content) {
			w.t.Errorf("%s have the environment of a sandbox, or cannot be read: %v", kind, err)
		}
	}
	w.call("create", "all", "POST", "/v1/sandboxes", `{"env":"python","files":[{"path":"`+canary+`variable-folder/"}]}`)
	if text := w.ok("", "GET", "/v1/sandboxes/"+id, ""); strings.Contains(text, canary+"variable") || strings.Contains(text, content) {
		w.t.Errorf("the record has the environment of its sandbox: %s", text)
	}
	w.inside(id)
	w.ok("release", "DELETE", "/v1/sandboxes/"+id, "")
}

// operations walks what operators do.
func (w *walk) operations() {
	w.t.Helper()
	w.ok("refresh", "POST", "/v1/envs/default/python:refresh", `{"dryRun":true}`)
	w.ok("drain", "POST", "/v1/clusters/east:drain", "{}")
	w.ok("undrain", "POST", "/v1/clusters/east:undrain", "{}")
	w.call("forget", "all", "POST", "/v1/clusters/nowhere:forget", "{}")
	w.call("drain", "look", "POST", "/v1/clusters/east:drain", "{}")
	w.ok("accept", "POST", "/v1/hub:acceptLoss", "{}")
}

// backup returns the archive of all that the hub keeps, uncompressed.
func (m *methods) backup() []byte {
	m.t.Helper()
	id := m.id("backup")
	m.called[sandboxv1.Hub_BackupHub_FullMethodName] = true
	m.lines[id] = audit.Event{
		Stage: audit.End, Who: m.who, Verb: "backup", Object: audit.Object{Resource: "hub"},
		Result: audit.Result{Outcome: audit.OK, Code: codes.OK.String()},
	}
	stream, err := sandboxv1.NewHubClient(m.conn).BackupHub(m.outgoing(id), &sandboxv1.BackupHubRequest{})
	must.Succeed(m.t, err)
	var archive bytes.Buffer
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			all, err := stack.Unzipped(&archive)
			must.Succeed(m.t, err)
			return all
		}
		must.Succeed(m.t, err)
		archive.Write(chunk.GetData())
	}
}

// events reads an audit file.
func events(t *testing.T, file string) (all []audit.Event) {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	text = text[:bytes.LastIndexByte(text, '\n')+1] // what follows the last line is being written
	bad, err := audit.Read(bytes.NewReader(text), func(e audit.Event) error { all = append(all, e); return nil })
	if err != nil || bad != 0 {
		t.Errorf("the audit has %d bad lines, %v", bad, err)
	}
	return all
}

// Each change that is made through the API has one line, complete, each refusal as well; a read has none. No secret is in any place that
// outlives a call or leaves the process.
func TestTheWalkFindsNoSecret(t *testing.T) {
	w := newWalk(t)
	w.sandboxes()
	w.operations()
	w.catalogue()
	w.access()
	w.kubernetes()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, w.root+"/v1/sandboxes/x", http.NoBody)
	must.Succeed(t, err)
	request.Header.Set("Authorization", "Bearer atoll_"+canary+"token")
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	_ = response.Body.Close()
	m := newMethods(w, atoll.HubEndpoint().Address, audit.Who{Name: "all", Kind: audit.Key, Proof: "key"})
	m.lives(canary + "hub")
	m.envs()
	m.changes()
	m.clusters()
	m.policy()
	archive := m.backup()

	all := w.settled(auditFile())
	m.complete(all)
	w.complete(all)
	w.search(archive)
}

// settled waits until each call of the walk has its one line, and returns all lines.
func (w *walk) settled(file string) (all []audit.Event) {
	w.t.Helper()
	wait.For(w.t, time.Minute, "the lines of all calls", func(context.Context) error {
		all = events(w.t, file)
		lines := map[string]int{}
		for _, e := range all {
			if e.Stage == audit.Done || e.Stage == audit.End {
				lines[e.RequestID]++
			}
		}
		wrong := []string{}
		for id, verb := range w.calls {
			if lines[id] != 1 {
				wrong = append(wrong, fmt.Sprintf("%s %s has %d", id, verb, lines[id]))
			}
		}
		return wait.If(len(wrong) == 0, fmt.Sprintf("of %d calls: %v", len(w.calls), wrong))
	})
	return all
}

// called checks the line of a call.
func (w *walk) called(e audit.Event, verb string) {
	w.t.Helper()
	caller := "all"
	if e.Reason == string(problem.Forbidden) {
		caller = "look"
	}
	if e.Verb != verb || e.Who.Name != caller || e.Who.Kind != audit.Key || e.Who.Proof != "key" {
		w.t.Errorf("a call of %s that is %q has the line %+v", caller, verb, e)
	}
}

// complete checks what each line has.
func (w *walk) complete(all []audit.Event) {
	w.t.Helper()
	seen := map[string]int{}
	for _, e := range all {
		if id := e.RequestID; strings.HasPrefix(id, w.t.Name()+"-") {
			w.called(e, cmp.Or(w.calls[id], w.talks[id]))
		}
		switch {
		case e.Schema != audit.Schema || e.Time.IsZero() || e.Replica == "" || e.From.Address == "" || e.Who.Kind == "" || e.Who.Proof == "" ||
			e.Stage != audit.Summary && (e.ID == "" || e.Outcome == ""):
			w.t.Errorf("a line lacks something: %+v", e)
		case e.Who.Kind == audit.Key && e.TraceID == "" && e.Stage == audit.Done && e.Reason != "FORBIDDEN" && e.Conversation == nil:
			w.t.Errorf("a line lacks its trace: %+v", e)
		case e.Stage == audit.End && e.Outcome == audit.Refused:
			w.t.Errorf("a conversation that had begun is refused: %+v", e)
		}
		seen[string(e.Stage)+" "+e.Verb+" "+string(e.Outcome)]++
		if e.Repeat {
			seen["repeat"]++
		}
		if e.Verb == "create" && e.Object.Resource == "sandboxes" && e.Outcome == audit.OK && (e.Object.Sandbox == "" || e.Cluster != cluster ||
			e.Object.Env != "python" || (e.Object.User == "ada") != (e.Object.ClaimKeyHash != "")) {
			w.t.Errorf("a create lacks something: %+v", e)
		}
	}
	for what, n := range map[string]int{"repeat": 1, "done create ok": 2, "done release ok": 1, "done pause ok": 1, "done attach ok": 1,
		"begin exec ok": 1, "done release refused": 1, "begin backup ok": 1, "end backup ok": 1, "begin files ok": 1, "end files ok": 1,
		"begin processes ok": 1, "done put ok": 3, "done delete ok": 3, "done import ok": 1, "done rotate ok": 2, "done invite ok": 1} {
		if seen[what] < n || what == "repeat" && seen[what] != n {
			w.t.Errorf("%d lines are %q, want %d: %v", seen[what], what, n, seen)
		}
	}
}

// search looks for canaries and tokens where none may be. Pods carry the claim's key and metadata, and are not searched.
func (w *walk) search(archive []byte) {
	w.t.Helper()
	places := map[string]string{"the backup": string(archive)}
	places["the traces"], places["the collector's logs"] = collected.text()
	out, err := atoll.Cluster(cluster).Kubectl(w.t.Context(), "get", "events", "-A", "-o", "yaml")
	must.Succeed(w.t, err)
	places["events"] = out
	for program := range atoll.MetricsURLs() {
		if places["the metrics of "+program], err = atoll.Metrics(w.t.Context(), program); err != nil {
			w.t.Error(err)
		}
	}
	for _, dir := range []string{atoll.HubData(), atoll.LogDir(), filepath.Dir(auditFile())} {
		must.Succeed(w.t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			places[path] = string(text)
			return err
		}))
	}
	if len(places["the traces"]) == 0 || len(places["the collector's logs"]) == 0 || len(places) < 10 {
		w.t.Errorf("only %d places were searched", len(places))
	}
	// The hub keeps a claim's key and metadata in base64; what goes to its sandbox's daemon alone it keeps in no form.
	forms := append(slices.Clone(w.secrets), stack.Forms(canary+"variable")...)
	for place, text := range places {
		for _, secret := range forms {
			if i := strings.Index(text, secret); i >= 0 {
				w.t.Errorf("%s has a secret: %q", place, text[max(0, i-200):min(len(text), i+100)])
			}
		}
	}
}

// An exec's event in the audit of the cluster's API server names the hub's caller, in its user agent.
func TestAnExecsAuditEventNamesTheCaller(t *testing.T) {
	w := newWalk(t)
	id := idOf(t, w.ok("create", "POST", "/v1/sandboxes", `{"env":"python"}`))
	w.exec(id)
	w.call("", "all", "GET", "/v1/sandboxes/"+id+"/ports/8000/", "")
	wait.For(t, time.Minute, "the API server's events", func(context.Context) error {
		all, err := planes.Plane(cluster).Audit()
		if err != nil {
			return err
		}
		named := map[string]bool{}
		for _, e := range all {
			if e.Resource == "pods" && strings.Contains(e.UserAgent, "(caller=key:all; sandbox="+id+")") {
				named[e.Subresource] = true
			}
		}
		return wait.If(named["exec"] && named["portforward"], named)
	})
	w.ok("release", "DELETE", "/v1/sandboxes/"+id, "")
}
