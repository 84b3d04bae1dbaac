// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// lines is a sink.
type lines chan audit.Event

func (lines) Name() string { return "test" }
func (lines) Close() error { return nil }
func (l lines) Write(all []audit.Line) error {
	for _, line := range all {
		if strings.Contains(string(line.Text), "canary-") && !strings.Contains(string(line.Text), "canary-request") {
			return fmt.Errorf("a secret in %s", line.Text)
		}
		l <- line.Event
	}
	return nil
}

// quiet opens conversations in which nothing is said.
type quiet struct{}

func (quiet) Open(context.Context, string, *federationv1.ReachCall) (reach.Tunnel, error) {
	cut := make(chan struct{})
	return mute{&conversation{cut: cut, end: sync.OnceFunc(func() { close(cut) })}}, nil
}

type mute struct{ *conversation }

func (mute) Send([]byte) error { return nil }

// auditedAPI is an API with two keys, ops for everything and reader for reading, and its audit. all waits for so many lines, ends the
// audit, and returns every line.
func auditedAPI(t *testing.T) (base string, tokens map[string]string, all func(n int) []audit.Event) {
	t.Helper()
	tokens = map[string]string{}
	var file []byte
	for name, scope := range map[string]Scope{"ops": ScopeAdmin, "reader": ScopeRead} {
		token, entry, err := NewToken(Key{Name: name, AllTeams: true, AllNamespaces: true, Scopes: []Scope{scope}})
		must.Succeed(t, err)
		tokens[name] = token
		file = append(file, bytes.TrimPrefix(entry, []byte(map[bool]string{true: "keys:\n"}[file != nil]))...)
	}
	path := filepath.Join(t.TempDir(), "keys.yaml")
	must.Succeed(t, os.WriteFile(path, file, 0o600))
	auth, err := newAuthenticator(path, clock.RealClock{}, testlog.New(t))
	must.Succeed(t, err)
	out := make(lines, 100)
	log := audit.New(audit.Options{Sinks: []audit.Sink{out}, Replica: "hub-0", Clock: clock.RealClock{}, Log: testlog.New(t)})
	all = func(n int) (events []audit.Event) {
		for range n {
			events = append(events, <-out)
		}
		must.Succeed(t, log.Close())
		close(out)
		for e := range out {
			events = append(events, e)
		}
		return events
	}
	return serveAPI(t, newFleet(t, "default/demo"), Options{Auth: auth, Audit: log, Reach: quiet{}}), tokens, all
}

// Each change and each refusal has one line, over gRPC and REST, with who, from where, what and how it ended, and no secret.
func TestTheAuditHasALineForEachCall(t *testing.T) {
	base, tokens, all := auditedAPI(t)
	rest := func(token, method, path, body string) {
		exchange(t, base, method, path, body, "Authorization", "Bearer "+token, "X-Request-Id", "canary-request", "User-Agent", "curl/8",
			"X-Forwarded-For", "198.51.100.7")
	}
	secret := `"claimKey":"canary-key","metadata":{"a":"canary-metadata"},"postStartHooks":[{"exec":{"command":["canary-hook"]}}]`
	rest(tokens["ops"], "GET", "/v1/clusters", "")
	rest(tokens["ops"], "POST", "/v1/clusters/east:drain", "{}")
	rest(tokens["ops"], "POST", "/v1/sandboxes", `{"env":"missing",`+secret+`}`)
	rest(tokens["reader"], "POST", "/v1/sandboxes", `{"env":"demo",`+secret+`}`)
	rest(tokens["reader"], "GET", "/v1/sandboxes/01-east/exec?command=canary-command", "")
	rest(tokens["ops"], "POST", "/v1/sandboxes", `{"env":"demo","startupTimeout":"canary-soon"}`)
	rest(tokens["ops"], "POST", "/v1/sandboxes", `{"env":`)
	rest(tokens["ops"], "POST", "/v1/sandboxes", `{"canary-field":1}`)
	for range 100 {
		rest("atoll_canary-token", "GET", "/v1/clusters", "")
	}
	conn := testserver.Dial(t, strings.TrimPrefix(base, "http://"))
	unreadable := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+tokens["ops"], "x-request-id", "canary-request")
	if err := conn.Invoke(unreadable, sandboxv1.Sandboxes_ReleaseSandbox_FullMethodName, []byte{0xff}, &[]byte{},
		grpc.ForceCodec(rawCodec{})); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a request that is no message: %v", err)
	}
	as := func(name string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+tokens[name])
	}
	for _, name := range []string{"ops", "reader"} {
		_, _ = sandboxv1.NewClustersClient(conn).ForgetCluster(as(name), &sandboxv1.ForgetClusterRequest{Id: "east"})
	}
	var got []string
	total := int64(0)
	for _, e := range all(0) {
		if e.From.Address != "127.0.0.1" || e.From.UserAgent == "" || e.Replica != "hub-0" || e.Time.IsZero() || e.Schema != audit.Schema {
			t.Errorf("a line lacks something: %+v", e)
		}
		if e.Reason == "UNAUTHENTICATED" {
			if total++; e.Stage == audit.Summary {
				total += e.Count - 1
			}
			continue
		}
		if e.RequestID != "canary-request" && e.Verb != "forget" {
			t.Errorf("request id %q", e.RequestID)
		}
		got = append(got, strings.TrimRight(fmt.Sprintf("%s %s %s %s %s %s %s%s%s", e.Stage, e.Who.Name, e.Who.Proof, e.Verb, e.Object.Resource,
			e.Outcome, e.Reason+" ", e.Cluster+" ", e.Object.Env+e.Object.Sandbox), " "))
	}
	want := []string{
		"done ops key drain clusters ok  east",
		"done ops key create sandboxes refused NOT_FOUND  missing",
		"done reader key create sandboxes refused FORBIDDEN  demo",
		"done reader key exec sandboxes/exec refused FORBIDDEN east 01-east",
		"done ops key create sandboxes refused INVALID",
		"done ops key create sandboxes refused INVALID",
		"done ops key create sandboxes refused INVALID",
		"done ops key release sandboxes refused INVALID",
		"done ops key forget clusters ok  east",
		"done reader key forget clusters refused FORBIDDEN",
	}
	if text := strings.Join(got, "\n"); text != strings.Join(want, "\n") {
		t.Errorf("the audit is\n%s\nwant\n%s", text, strings.Join(want, "\n"))
	}
	if total != 100 {
		t.Errorf("%d calls without credentials are in the audit, want 100", total)
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (rawCodec) Name() string                       { return "proto" }

// A conversation that is refused because its caller has too many has a line, and many refusals are counted in one.
func TestTheAuditHasRefusedConversations(t *testing.T) {
	out := make(lines, 100)
	log := audit.New(audit.Options{Sinks: []audit.Sink{out}, Replica: "hub-0", Clock: clock.RealClock{}, Log: testlog.New(t)})
	token, path := keyFile(t, Key{Name: "ops", AllTeams: true, AllNamespaces: true, Scopes: []Scope{ScopeAdmin}})
	keys, err := NewKeyFile(path, clock.RealClock{}, testlog.New(t))
	must.Succeed(t, err)
	left := map[string]string{"RateLimit": `"team-conversations";r=0`}
	base := serveAPI(t, newFleet(t, "default/demo"), Options{
		Audit: log, Reach: quiet{},
		Auth: NewAuth(AuthOptions{Keys: keys, Clock: clock.RealClock{}, Log: testlog.New(t),
			Converse: func(principal.Principal) (map[string]string, func(), error) {
				return left, nil, problem.New(problem.Quota, "too many").WithRetryAfter(time.Second)
			}}),
	})
	for _, kind := range []string{"logs", "exec", "ports/80/"} {
		for range 10 {
			code, header, _ := send(t, base, http.MethodGet, "/v1/sandboxes/01-east/"+kind, "", "Authorization", "Bearer "+token)
			if code != http.StatusTooManyRequests || header.Get("RateLimit") == "" || header.Get("Retry-After") == "" {
				t.Errorf("%s: %d %v", kind, code, header)
			}
		}
	}
	must.Succeed(t, log.Close())
	close(out)
	total, n := int64(0), 0
	for e := range out {
		if n++; e.Who.Name != "ops" || e.Reason != "QUOTA" || e.Outcome != audit.Refused {
			t.Errorf("a line is %+v", e)
		}
		if total++; e.Stage == audit.Summary {
			total += e.Count - 1
		}
	}
	if total != 30 || n > 10 {
		t.Errorf("%d lines tell of %d refusals, want 30 in few", n, total)
	}
}

// A conversation has a line when it begins and one when it ends, with the same id, its bytes and why it ended.
func TestTheAuditHasTwoLinesForAConversation(t *testing.T) {
	base, tokens, all := auditedAPI(t)
	dialer := websocket.Dialer{Subprotocols: []string{reach.ExecProtocol}}
	socket, response, err := dialer.Dial("ws"+strings.TrimPrefix(base,
		"http")+"/v1/sandboxes/01-east/exec?command=canary-command&container=main",
		map[string][]string{"Authorization": {"Bearer " + tokens["ops"]}})
	must.Succeed(t, err)
	_ = response.Body.Close()
	must.Succeed(t, socket.WriteMessage(websocket.BinaryMessage, append([]byte{reach.ChannelStdin}, "canary-stdin"...)))
	must.Succeed(t, socket.WriteMessage(websocket.BinaryMessage, []byte{reach.ChannelClose, reach.ChannelStdin}))
	must.Succeed(t, socket.Close())
	two := all(2)
	if len(two) != 2 {
		t.Fatalf("%d lines, want 2: %+v", len(two), two)
	}
	begin, end := two[0], two[1]
	if begin.Stage != audit.Begin || end.Stage != audit.End || begin.ID != end.ID || begin.Who.Name != "ops" || end.Who.Name != "ops" ||
		end.Conversation == nil || end.Conversation.Container != "main" || end.Conversation.BytesIn != 15 || end.Conversation.Cause == "" ||
		end.Object.Sandbox != "01-east" {
		t.Errorf("begin %+v, end %+v", begin, end)
	}
}

// What is done by the daemon's port is recorded as what it may do.
func TestTheAuditHasTheDaemonsPortAsProcesses(t *testing.T) {
	base, tokens, all := auditedAPI(t)
	const path = "/v1/sandboxes/01-east/ports/49983"
	if code, _, text := send(t, base, http.MethodGet, path, "", "Authorization", "Bearer "+tokens["reader"]); code != http.StatusForbidden {
		t.Errorf("a caller without the permission: %d %s", code, text)
	}
	dialer := websocket.Dialer{Subprotocols: []string{reach.TCPProtocol}}
	socket, response, err := dialer.Dial("ws"+strings.TrimPrefix(base, "http")+path,
		map[string][]string{"Authorization": {"Bearer " + tokens["ops"]}})
	must.Succeed(t, err)
	_ = response.Body.Close()
	must.Succeed(t, socket.Close())
	var got []string
	for _, e := range all(3) {
		got = append(got, fmt.Sprint(e.Stage, " ", e.Who.Name, " ", e.Verb, " ", e.Object.Resource, " ", e.Conversation.Kind))
	}
	want := []string{
		"done reader processes sandboxes/exec processes", "begin ops processes sandboxes/exec processes",
		"end ops processes sandboxes/exec processes",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the audit is %q, want %q", got, want)
	}
}
