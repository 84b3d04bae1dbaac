// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/testserver"
	workercalls "navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/claims"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/principal"
	sandboxsvc "navix.sh/atoll/hub/internal/sandboxes"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/watch"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unconnected is a link without workers.
type unconnected struct{}

func (unconnected) Dispatch(context.Context, string, *federationv1.Dispatch) (*federationv1.Answer, error) {
	return nil, workercalls.ErrNotConnected
}

func (unconnected) OpenFeed(context.Context, string, func(context.Context, string) error) (watch.Feed, error) {
	return nil, workercalls.ErrNotConnected
}

// newFleet is a real fleet that has reports of these Envs (namespace/name) from cluster east, which has left again.
func newFleet(t testing.TB, envs ...string) *fleet.Fleet {
	t.Helper()
	f, err := fleet.New(t.Context(), fleet.Options{Clock: clock.RealClock{}, Registry: fleet.NewRegistry(openStore(t, "registry"))})
	must.Succeed(t, err)
	session, _, refused := f.Connect(fleet.Peer{ClusterID: "east"}, &federationv1.Hello{Protocol: 1, ClusterUid: "uid", Term: "t1", Stream: 1})
	if refused != nil {
		t.Fatal(refused)
	}
	must.Succeed(t, session.Begin(&federationv1.Begin{Incarnation: 1}))
	report := &federationv1.Report{Sequence: 1, Last: true, Complete: true}
	for _, env := range envs {
		namespace, name, _ := strings.Cut(env, "/")
		report.Segments = append(report.Segments, &federationv1.EnvSegment{
			Key: &federationv1.EnvKey{Namespace: namespace, Name: name},
			Members: []*federationv1.MemberSegment{{
				Name: "pool", State: federationv1.MemberState_ACTIVE, Idle: 2, ReadyIdle: 2, Desired: 2, QueueCapacity: 10,
			}},
		})
	}
	session.Report(report)
	return f
}

func openStore(t testing.TB, kind string) store.Store {
	t.Helper()
	s, err := store.OpenBolt(filepath.Join(t.TempDir(), kind+".db"), kind)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// serveAPI returns the base URL of an API over the fleet, without workers.
func serveAPI(t testing.TB, f *fleet.Fleet, o Options) string {
	t.Helper()
	service := claims.New(claims.Options{Fleet: f, Dispatcher: unconnected{}, Store: openStore(t, "claims"), Rand: func() uint64 { return 1 }})
	t.Cleanup(service.Close)
	sandboxes := sandboxsvc.New(sandboxsvc.Options{Fleet: f, Dispatcher: unconnected{}, Claims: service, Feeds: unconnected{}})
	t.Cleanup(sandboxes.CloseWatches)
	o.Claims, o.Sandboxes, o.Fleet, o.Clock = service, sandboxes, f, clock.RealClock{}
	server, err := New(o)
	must.Succeed(t, err)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return "http://" + testserver.Serve(t, server.Serve)
}

// keyFile writes a file with one key.
func keyFile(t testing.TB, key Key) (token, path string) {
	t.Helper()
	token, entry, err := NewToken(key)
	must.Succeed(t, err)
	path = filepath.Join(t.TempDir(), "keys.yaml")
	must.Succeed(t, os.WriteFile(path, entry, 0o600))
	return token, path
}

// newAuthenticator returns an Authenticator for the keys in a file.
func newAuthenticator(path string, c clock.WithTicker, log logr.Logger) (*Authenticator, error) {
	file, err := NewKeyFile(path, c, log)
	if err != nil {
		return nil, err
	}
	return NewAuth(AuthOptions{Keys: file, Clock: c, Log: log}), nil
}

// authOf admits the callers of one key.
func authOf(t testing.TB, key Key) (token string, auth *Authenticator) {
	t.Helper()
	token, path := keyFile(t, key)
	auth, err := newAuthenticator(path, clock.RealClock{}, testlog.New(t))
	must.Succeed(t, err)
	return token, auth
}

// send makes one REST call with headers, given as names and values, and returns what is responded.
func send(t *testing.T, base, method, path, body string, headers ...string) (code int, header http.Header, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
	must.Succeed(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	must.Succeed(t, err)
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode, resp.Header, string(must.Read(t, resp.Body))
}

// exchange is one REST call and its response, as golden text.
func exchange(t *testing.T, base, method, path, body string, headers ...string) string {
	t.Helper()
	code, header, text := send(t, base, method, path, body, headers...)
	out := fmt.Sprintf("%s %s %s\n%d %s", method, path, body, code, header.Get("Content-Type"))
	if retry := header.Get("Retry-After"); retry != "" {
		out += " Retry-After: " + retry
	}
	// The protobuf library varies the space in its errors from build to build.
	text = strings.ReplaceAll(strings.TrimSpace(text), "\u00a0", " ")
	return out + "\n" + text + "\n\n"
}

// TestProblemDocuments pins what a REST caller sees of every kind of error.
func TestProblemDocuments(t *testing.T) {
	base := serveAPI(t, newFleet(t, "default/demo", "default/other"), Options{})
	var got strings.Builder
	for _, tc := range [][]string{
		{"POST", "/v1/sandboxes", `{"env":"demo"}`},
		{"POST", "/v1/sandboxes", `{"env":"demo","noQueue":true,"clusters":["west"],"requireClusters":true,"claimKey":"k"}`},
		{"POST", "/v1/sandboxes", `{"env":"dmeo"}`, "Idempotency-Key", "k1"},
		{"POST", "/v1/sandboxes", `{"namespace":"No","env":"","image":"x y","claimKey":"\n","wait":"NONE","multiplier":-1,` +
			`"labels":{"agentbox.navix.sh/x":"y"},"startupTimeout":"-1s","clusters":["A"]}`},
		{"POST", "/v1/sandboxes", `{"env":"demo","idleTimeout":"-90s","maxLifetime":"1000000000s"}`},
		{"POST", "/v1/sandboxes", `{"env":"demo","claimKey":"k","firstActivityTimeout":"90s"}`},
		{"POST", "/v1/sandboxes", `{"env":"demo","postStartHooks":[{"exec":{}},{"http":{"port":70000,"body":"secret"}}]}`},
		{"POST", "/v1/sandboxes", `{"env":"demo","claimKey":"a"}`, "Idempotency-Key", "b"},
		{"POST", "/v1/sandboxes", `{"env":`},
		{"POST", "/v1/sandboxes", `{"env":"demo","startupTimeout":"soon"}`},
		{"POST", "/v1/sandboxes", `{"environment":"demo"}`},
		{"GET", "/v1/sandboxes?pageSize=5000&pageToken=x", ""},
		{"GET", "/v1/sandboxes?clusterId=mars", ""},
		{"GET", "/v1/sandboxes/nonsense", ""},
		{"GET", "/v1/sandboxes/01hzzzzzzzzzzzzzzzzzzz0001-mars", ""},
		{"DELETE", "/v1/sandboxes/01hzzzzzzzzzzzzzzzzzzz0001-east", ""},
		{"PATCH", "/v1/sandboxes/x", `{}`},
		{"PATCH", "/v1/sandboxes/01hzzzzzzzzzzzzzzzzzzz0001-east", `{"idleTimeout":"-1s"}`},
		{"PATCH", "/v1/sandboxes/01hzzzzzzzzzzzzzzzzzzz0001-east", `{"idleTimeout":"90s"}`},
		{"POST", "/v1/sandboxes/x:touch", `{}`},
		{"POST", "/v1/sandboxes/01hzzzzzzzzzzzzzzzzzzz0001-east:touch", `{}`},
		{"POST", "/v1/sandboxes/x:pause", `{}`},
		{"POST", "/v1/sandboxes/x:resume", `{}`},
		{"GET", "/v1/sandboxes/x/logs", ""},
		{"POST", "/v1/sandboxes/x/exec", ""},
		{"GET", "/v1/sandboxes/x/ports/80/index.html", ""},
		{"GET", "/v1/claims/unknown", ""},
		{"DELETE", "/v1/claims/unknown?namespace=prod", ""},
		{"GET", "/v1/clusters/west", ""},
		{"POST", "/v1/clusters/west:drain", `{}`},
		{"POST", "/v1/clusters/east:forget", `{}`},
		{"GET", "/v1/envs/default/dmeo", ""},
		{"GET", "/v1/envs?pageToken=x", ""},
		{"PUT", "/v1/envs/default/demo", `{}`},
		{"DELETE", "/v1/envs/default/demo", ""},
		{"POST", "/v1/envs/default/demo:plan", `{}`},
		{"POST", "/v1/envs/default/dmeo:explain", `{}`},
		{"GET", "/v1/templates/t", ""},
		{"PUT", "/v1/templates/t", `{}`},
		{"DELETE", "/v1/templates/t", ""},
		{"GET", "/v2/nothing", ""},
		{"PUT", "/v1/sandboxes", `{}`},
	} {
		got.WriteString(exchange(t, base, tc[0], tc[1], tc[2], tc[3:]...))
	}
	golden(t, "problems.golden", got.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must.Succeed(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	must.Succeed(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got; -update writes it):\n%s", diff)
	}
}

func envKey(env *sandboxv1.Env) string { return env.GetNamespace() + "/" + env.GetName() }

func TestEnvsInPages(t *testing.T) {
	f := newFleet(t, "a/one", "b/one", "b/two", "c/one")
	e := envs{fleet: f}
	list := func(ctx context.Context, namespace string, size int32) []string {
		var names []string
		for token := ""; ; {
			page, err := e.ListEnvs(ctx, &sandboxv1.ListEnvsRequest{Namespace: namespace, PageSize: size, PageToken: token})
			must.Succeed(t, err)
			for _, env := range page.GetEnvs() {
				names = append(names, envKey(env))
			}
			if token = page.GetNextPageToken(); token == "" {
				return names
			}
		}
	}
	for _, size := range []int32{0, 1, 2, 4} {
		if diff := cmp.Diff([]string{"a/one", "b/one", "b/two", "c/one"}, list(t.Context(), "", size)); diff != "" {
			t.Errorf("pages of %d:\n%s", size, diff)
		}
		if diff := cmp.Diff([]string{"b/one", "b/two"}, list(t.Context(), "b", size)); diff != "" {
			t.Errorf("of one namespace, pages of %d:\n%s", size, diff)
		}
	}
	west, _, refused := f.Connect(fleet.Peer{ClusterID: "west"}, &federationv1.Hello{Protocol: 1, ClusterUid: "other", Term: "t1", Stream: 2})
	if refused != nil {
		t.Fatal(refused)
	}
	must.Succeed(t, west.Begin(&federationv1.Begin{Incarnation: 1}))
	west.Report(&federationv1.Report{Sequence: 1, Last: true, Complete: true, Segments: []*federationv1.EnvSegment{
		{Key: &federationv1.EnvKey{Namespace: "b", Name: "two"}}, {Key: &federationv1.EnvKey{Namespace: "d", Name: "one"}},
	}})
	for cluster, want := range map[string][]string{"east": {"a/one", "b/one", "b/two", "c/one"}, "west": {"b/two", "d/one"}} {
		var names []string
		for r := (&sandboxv1.ListEnvsRequest{ClusterId: cluster, PageSize: 1}); ; {
			page, err := e.ListEnvs(t.Context(), r)
			must.Succeed(t, err)
			for _, env := range page.GetEnvs() {
				names = append(names, envKey(env))
			}
			if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
				break
			}
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("of %s:\n%s", cluster, diff)
		}
	}
	if _, err := e.ListEnvs(t.Context(), &sandboxv1.ListEnvsRequest{ClusterId: "mars"}); problem.FromError(err).Reason != problem.NotFound {
		t.Errorf("of a cluster that is not there: %v", err)
	}
	caller := principal.With(t.Context(), principal.Principal{AllTeams: true, Namespaces: []string{"a", "c"}})
	if diff := cmp.Diff([]string{"a/one", "c/one"}, list(caller, "", 1)); diff != "" {
		t.Errorf("of the caller's namespaces:\n%s", diff)
	}
	_, err := e.ListEnvs(caller, &sandboxv1.ListEnvsRequest{Namespace: "b"})
	if problem.FromError(err).Reason != problem.Forbidden {
		t.Errorf("another's namespace: %v", err)
	}
	_, err = e.GetEnv(caller, &sandboxv1.GetEnvRequest{Namespace: "b", Name: "one"})
	if problem.FromError(err).Reason != problem.Forbidden {
		t.Errorf("another's Env: %v", err)
	}
	if got, err := e.GetEnv(caller, &sandboxv1.GetEnvRequest{Namespace: "c", Name: "one"}); err != nil || got.GetIdle() != 2 {
		t.Errorf("%v %v", got, err)
	}
}

// An Env without a namespace is of the default one, also for a caller that may see no other.
func TestAnEnvWithoutANamespaceIsOfTheDefaultOne(t *testing.T) {
	f := newFleet(t, "default/one", "payroll/secret")
	service := claims.New(claims.Options{Fleet: f, Dispatcher: unconnected{}, Store: openStore(t, "claims"), Rand: func() uint64 { return 1 }})
	t.Cleanup(service.Close)
	sandboxes := sandboxsvc.New(sandboxsvc.Options{Fleet: f, Dispatcher: unconnected{}, Claims: service, Feeds: unconnected{}})
	t.Cleanup(sandboxes.CloseWatches)
	e := envs{fleet: f, service: sandboxes}
	for name, ask := range map[string]func(ctx context.Context, env string) error{
		"get": func(ctx context.Context, env string) error {
			_, err := e.GetEnv(ctx, &sandboxv1.GetEnvRequest{Name: env})
			return err
		},
		"explain": func(ctx context.Context, env string) error {
			_, err := e.ExplainEnv(ctx, &sandboxv1.ExplainEnvRequest{Name: env})
			return err
		},
	} {
		for who, caller := range map[string]principal.Principal{
			"all": {AllTeams: true, AllNamespaces: true}, "default": {AllTeams: true, Namespaces: []string{"default"}},
		} {
			ctx := principal.With(t.Context(), caller)
			if err := ask(ctx, "one"); err != nil {
				t.Errorf("%s by a caller of %s: %v", name, who, err)
			}
			err := ask(ctx, "absent")
			if err == nil || problem.FromError(err).Reason != problem.NotFound || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s of an Env that is not there, by a caller of %s: %v, want %q without names of other namespaces", name, who, err,
					problem.NotFound)
			}
		}
	}
}
