// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/oidctest"
	"navix.sh/atoll/e2e/wait"
)

// shown collects what a command prints.
type shown struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *shown) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(p)
}

func (s *shown) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// atHome gives the test contexts of its own.
func atHome(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "atoll")
	t.Setenv(configHome, dir)
	return dir
}

// command runs atollctl.
func command(ctx context.Context, stdout, stderr io.Writer, args ...string) error {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}

func succeed(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs shown
	if err := command(t.Context(), &out, &errs, args...); err != nil {
		t.Fatalf("atollctl %s: %v\n%s", strings.Join(args, " "), err, errs.text())
	}
	return out.text()
}

var printedLink = regexp.MustCompile(`http://\S+`)

// login runs atollctl login, and does in a browser what it prints.
func login(t *testing.T, visit func(where string) error, args ...string) (printed string, err error) {
	t.Helper()
	var errs shown
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { done <- command(ctx, io.Discard, &errs, append([]string{"login"}, args...)...) }()
	var where string
	wait.For(t, 30*time.Second, "atollctl to print a URL", func(context.Context) error {
		where = printedLink.FindString(errs.text())
		return wait.If(where != "", errs.text())
	})
	if err := visit(where); err != nil {
		t.Errorf("visiting %s: %v", where, err)
	}
	err = <-done
	return errs.text(), err
}

// tokenHub is a hub that notes the token of each call.
type tokenHub struct {
	sandboxv1.UnimplementedClustersServer
	mu     sync.Mutex
	tokens []string
}

func (r *tokenHub) ListClusters(ctx context.Context, _ *sandboxv1.ListClustersRequest) (*sandboxv1.ListClustersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens = append(r.tokens, strings.Join(metadata.ValueFromIncomingContext(ctx, "authorization"), ","))
	return &sandboxv1.ListClustersResponse{}, nil
}

func (r *tokenHub) last(t *testing.T) string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tokens) == 0 {
		t.Fatal("the hub was not called")
	}
	return r.tokens[len(r.tokens)-1]
}

func startTokenHub(t *testing.T) (*tokenHub, string) {
	t.Helper()
	r := &tokenHub{}
	return r, serving(t, func(s *grpc.Server) { sandboxv1.RegisterClustersServer(s, r) })
}

func onlyMine(t *testing.T, dir string) {
	t.Helper()
	must.Succeed(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	}))
}

// Sign in by a browser and by a device code, call a hub, renew, and sign out, at a real issuer. An HTTP client reads the pages of dex, not
// a browser.
func TestLogin(t *testing.T) {
	dir := atHome(t)
	hub, address := startTokenHub(t)
	dex := oidctest.Start(t, time.Hour)
	as := func(user string) func(string) error {
		return func(where string) error {
			_, err := dex.Visit(t.Context(), where, user, "password")
			return err
		}
	}
	issuer := []string{"--server", address, "--issuer", dex.Issuer, "--client-id", oidctest.Client}
	printed, err := login(t, as("alice"), append([]string{"--no-browser", "--context", "prod"}, issuer...)...)
	if err != nil || !strings.Contains(printed, "Signed in as alice@example.com for context prod.") {
		t.Fatalf("%v\n%s", err, printed)
	}
	onlyMine(t, dir)
	succeed(t, "clusters")
	first := hub.last(t)
	if !strings.HasPrefix(first, "Bearer ey") {
		t.Errorf("the hub saw %q", first)
	}
	if strings.Contains(printed+succeed(t, "config", "view"), strings.TrimPrefix(first, "Bearer ")) {
		t.Error("the token is shown")
	}
	if printed, err = login(t, as("bob"), append([]string{"--device", "--context", "far"}, issuer...)...); err != nil ||
		!strings.Contains(printed, "Signed in as bob@example.com for context far.") {
		t.Fatalf("by a device code: %v\n%s", err, printed)
	}
	succeed(t, "clusters", "--context", "far")
	if second := hub.last(t); second == first {
		t.Error("context far has the token of prod")
	}
	list := succeed(t, "config", "get-contexts")
	for _, want := range []string{"* ", "alice@example.com", "bob@example.com"} {
		if !strings.Contains(list, want) {
			t.Errorf("contexts lack %q:\n%s", want, list)
		}
	}

	succeed(t, "logout", "--context", "prod")
	if err := command(t.Context(), io.Discard, io.Discard, "clusters", "--context", "prod"); err == nil || exitCodeOf(err) != 7 {
		t.Errorf("after the sign-out: %v", err)
	}
}

// renewedAtEachCall is so short a life of a token that each call renews it.
const renewedAtEachCall = 45 * time.Second

// calledWith returns the token of a call.
func calledWith(t *testing.T, hub *tokenHub) string {
	t.Helper()
	succeed(t, "clusters")
	token := hub.last(t)
	if !strings.HasPrefix(token, "Bearer ey") {
		t.Errorf("the hub saw %q", token)
	}
	return token
}

// Dex renews by refresh tokens (offline_access), each good once. Without any left, as after its restart, its user signs in again.
func TestDexRenewsTokens(t *testing.T) {
	atHome(t)
	hub, address := startTokenHub(t)
	dex := oidctest.Start(t, renewedAtEachCall)
	signIn := func() {
		printed, err := login(t, func(where string) error {
			_, err := dex.Visit(t.Context(), where, "alice", "password")
			return err
		}, "--no-browser", "--server", address, "--issuer", dex.Issuer, "--client-id", oidctest.Client)
		if err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
	}
	signIn()
	seen := map[string]bool{}
	for range 3 {
		seen[calledWith(t, hub)] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d tokens in 3 calls", len(seen))
	}
	dex.Stop()
	dex.Start()
	if err := command(t.Context(), io.Discard, io.Discard, "clusters"); err == nil || exitCodeOf(err) != 7 ||
		!strings.Contains(err.Error(), "the sign-in has ended") {
		t.Errorf("a sign-in that the issuer has forgotten: %v", err)
	}
	signIn()
	if seen[calledWith(t, hub)] {
		t.Error("a token of before")
	}
}

// What other pages and programs send to the redirect is refused, and the sign-in goes on.
func TestRedirectsThatDoNotFitEndNothing(t *testing.T) {
	atHome(t)
	dex := oidctest.Start(t, time.Hour)
	send := func(to url.URL, q url.Values) (int, error) {
		to.RawQuery = q.Encode()
		resp, err := http.Get(to.String())
		if err != nil {
			return 0, err
		}
		_ = resp.Body.Close()
		return resp.StatusCode, nil
	}
	redirect := func(where string) (url.URL, url.Values, error) {
		asked, err := url.Parse(where)
		if err != nil {
			return url.URL{}, nil, err
		}
		q := asked.Query()
		to, err := url.Parse(q.Get("redirect_uri"))
		if err != nil || to.Hostname() != "127.0.0.1" || q.Get("code_challenge_method") != "S256" || q.Get("nonce") == "" ||
			q.Get("state") == "" {
			return url.URL{}, nil, fmt.Errorf("asked with %s: %w", where, err)
		}
		return *to, q, nil
	}
	printed, err := login(t, func(where string) error {
		to, q, err := redirect(where)
		if err != nil {
			return err
		}
		for _, bad := range []url.Values{
			{}, {"code": {"stolen"}}, {"code": {"stolen"}, "state": {"guessed"}}, {"error": {"access_denied"}, "state": {"guessed"}},
			{"code": {"other"}, "state": {q.Get("state")}, "iss": {"https://evil.example"}},
		} {
			if code, err := send(to, bad); err != nil || code != http.StatusBadRequest {
				return fmt.Errorf("%s: %d, %w", bad.Encode(), code, err)
			}
		}
		_, err = dex.Visit(t.Context(), where, "alice", "password")
		return err
	}, "--no-browser", "--issuer", dex.Issuer, "--client-id", oidctest.Client)
	if err != nil {
		t.Errorf("%v\n%s", err, printed)
	}
	// A code of another sign-in is refused by the issuer.
	printed, err = login(t, func(where string) error {
		to, q, err := redirect(where)
		if err == nil {
			_, err = send(to, url.Values{"code": {"injected"}, "state": {q.Get("state")}})
		}
		return err
	}, "--no-browser")
	if err == nil || !strings.Contains(err.Error(), "exchanging the code") {
		t.Errorf("an injected code: %v\n%s", err, printed)
	}
}

func TestContexts(t *testing.T) {
	dir := atHome(t)
	hub, address := startTokenHub(t)
	other, otherAddress := startTokenHub(t)
	key := filepath.Join(t.TempDir(), "key")
	must.Succeed(t, os.WriteFile(key, []byte("atoll_a\n"), 0o600))
	succeed(t, "config", "set-context", "a", "--server", address, "--token-file", key)
	succeed(t, "config", "set-context", "b", "--server", otherAddress, "--exec-command", "sh", "--exec-arg", "-c", "--exec-arg",
		"echo atoll_b")
	onlyMine(t, dir)
	for _, tc := range []struct {
		hub  *tokenHub
		want string
		args []string
	}{
		{hub, "Bearer atoll_a", nil},
		{other, "Bearer atoll_b", []string{"--context", "b"}},
		{hub, "Bearer atoll_flag", []string{"--token", "atoll_flag"}},
		// The current context's token is not for a server that is named by itself.
		{other, "", []string{"--server", otherAddress}},
		{other, "Bearer atoll_a", []string{"--server", otherAddress, "--context", "a"}},
	} {
		succeed(t, append([]string{"clusters"}, tc.args...)...)
		if got := tc.hub.last(t); got != tc.want {
			t.Errorf("%q: the hub saw %q, want %q", tc.args, got, tc.want)
		}
	}
	succeed(t, "config", "use-context", "b")
	if got := strings.TrimSpace(succeed(t, "config", "current-context")); got != "b" {
		t.Errorf("current context %q", got)
	}
	t.Setenv("ATOLL_CONTEXT", "a")
	succeed(t, "clusters")
	if got := hub.last(t); got != "Bearer atoll_a" {
		t.Errorf("by the environment: %q", got)
	}
	// In the environment it is atollctl's own context, also for verify, whose --context is kubectl's.
	var said shown
	if err := command(t.Context(), &said, &said, "verify", "--for", "0s"); err == nil || !strings.Contains(said.text(),
		"no cluster is named") {
		t.Errorf("verify takes ATOLL_CONTEXT as a context of kubectl: %v\n%s", err, said.text())
	}
	t.Setenv("ATOLL_CONTEXT", "")
	succeed(t, "config", "delete-context", "b")
	for want, args := range map[string][]string{
		`no context "b", want one of: a`: {"config", "use-context", "b"},
		`no context "x"`:                 {"clusters", "--context", "x"},
		"name:":                          {"config", "set-context", "a b"},
		"--issuer and --client-id are":   {"login", "--context", "new"},
		"want https://HOST":              {"login", "--context", "new", "--issuer", "http://a.example", "--client-id", "x"},
	} {
		err := command(t.Context(), io.Discard, io.Discard, args...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("contexts: [{name: a, tokn: x}]"), 0o600))
	if err := command(t.Context(), io.Discard, io.Discard, "clusters"); err == nil || exitCodeOf(err) != exitUsage {
		t.Errorf("an unknown field: %v", err)
	}
}

// The context of a file of --config is atollctl's own, also for commands whose --context is kubectl's.
func TestAFilesContextIsAtollctls(t *testing.T) {
	atHome(t)
	hub, address := startTokenHub(t)
	dir := t.TempDir()
	key, file := filepath.Join(dir, "key"), filepath.Join(dir, "flags.yaml")
	must.Succeed(t, os.WriteFile(key, []byte("atoll_a\n"), 0o600))
	must.Succeed(t, os.WriteFile(file, []byte("context: a\n"), 0o600))
	succeed(t, "config", "set-context", "a", "--server", address, "--token-file", key)
	succeed(t, "config", "set-context", "b", "--server", "127.0.0.1:1")
	succeed(t, "config", "use-context", "b")
	var said shown
	err := command(t.Context(), &said, &said, "doctor", "--config", file)
	if err == nil || exitCodeOf(err) != exitFound { // this hub tells of nothing but its clusters
		t.Errorf("%v\n%s", err, said.text())
	}
	if got := hub.last(t); got != "Bearer atoll_a" {
		t.Errorf("the hub saw %q", got)
	}
}
