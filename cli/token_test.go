// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// expiring is a server that ends the first watch, after an event, because its caller's token has expired. It refuses the others.
type expiring struct {
	*scripted
	mu   sync.Mutex
	seen []string // of each watch, the caller's token and the resume token
}

func (e *expiring) WatchSandboxes(r *sandboxv1.WatchSandboxesRequest, stream grpc.ServerStreamingServer[sandboxv1.SandboxEvent]) error {
	token := strings.Join(metadata.ValueFromIncomingContext(stream.Context(), "authorization"), ",")
	e.mu.Lock()
	e.seen = append(e.seen, token+", "+r.GetResumeToken())
	first := len(e.seen) == 1
	e.mu.Unlock()
	if first {
		if err := stream.Send(&sandboxv1.SandboxEvent{Type: sandboxv1.SandboxEvent_BOOKMARK, ResumeToken: "resume"}); err != nil {
			return err
		}
	}
	return problem.New(problem.Unauthenticated, "the token expired")
}

// A watch goes on with another token when its own has expired. It ends if the server does not take that one either.
func TestAWatchOutlivesItsToken(t *testing.T) {
	atHome(t)
	s := &expiring{scripted: &scripted{phases: []sandboxv1.Phase{sandboxv1.Phase_RUNNING}}}
	address := serving(t, func(server *grpc.Server) { sandboxv1.RegisterSandboxesServer(server, s) })
	dir := t.TempDir()
	script := filepath.Join(dir, "token")
	must.Succeed(t, os.WriteFile(script, []byte("echo >> "+dir+"/calls; echo of-call-$(($(wc -l < "+dir+"/calls)))\n"), 0o600))
	succeed(t, "config", "set-context", "a", "--server", address, "--exec-command", "sh", "--exec-arg", script)
	err := command(t.Context(), io.Discard, io.Discard, "sandboxes", "--watch")
	if err == nil || problem.FromError(err).Reason != problem.Unauthenticated {
		t.Errorf("a token that the server does not take: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := []string{"Bearer of-call-1, ", "Bearer of-call-2, resume"}; !slices.Equal(s.seen, want) {
		t.Errorf("the watches were %q, want %q", s.seen, want)
	}
}

// A command such as port-forward connects with the token of now.
func TestAConnectionHasTheTokenOfNow(t *testing.T) {
	sent := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent <- r.Header.Get("Authorization")
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "token")
	must.Succeed(t, os.WriteFile(file, []byte("first\n"), 0o600))
	p, err := (&app{server: server.Listener.Addr().String(), tokenFile: file}).place(t.Context())
	must.Succeed(t, err)
	for _, token := range []string{"first", "renewed"} {
		must.Succeed(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
		_, err := p.connect(t.Context(), someSandbox, "ports/80", nil, reach.TCPProtocol)
		if err == nil || problem.FromError(err).Reason != problem.NotFound {
			t.Fatalf("a connection: %v", err)
		}
		if got := <-sent; got != "Bearer "+token {
			t.Errorf("it was made with %q, want %s", got, token)
		}
	}
}

// A token that a context's command printed is reused until shortly before it expires.
func TestAPrintedTokenIsReusedUntilItExpires(t *testing.T) {
	for name, tc := range map[string]struct {
		expires string
		want    string // the token of the second call, or the error
	}{
		"never":          {"", "of-call-1"},
		"in an hour":     {time.Now().Add(time.Hour).Format(time.RFC3339), "of-call-1"},
		"in two minutes": {time.Now().Add(2 * time.Minute).Format(time.RFC3339), "of-call-1"},
		"at once":        {time.Now().Add(printedSpare).Format(time.RFC3339), "of-call-2"},
		"a minute ago":   {time.Now().Add(-time.Minute).Format(time.RFC3339), "of-call-2"},
		"at no time":     {"soon", `getting a token from sh: status.expirationTimestamp: "soon" is not valid`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			script, calls := filepath.Join(dir, "token"), filepath.Join(dir, "calls")
			must.Succeed(t, os.WriteFile(script, []byte(fmt.Sprintf(`echo >> %[1]s
printf '{"status": {"token": "of-call-%%d", "expirationTimestamp": "%[2]s"}}' $(($(wc -l < %[1]s)))
`, calls, tc.expires)), 0o600))
			a := &app{side: &hubSide{Exec: &tokenCommand{Command: "sh", Args: []string{script}}}, printed: &printedToken{}}
			_, _ = a.bearer(t.Context())
			token, err := a.bearer(t.Context())
			if err != nil {
				token = err.Error()
			}
			if !strings.HasPrefix(token, tc.want) {
				t.Errorf("the second call has %q, want %q", token, tc.want)
			}
		})
	}
}
