// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	clocktesting "k8s.io/utils/clock/testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

// A watch needs a key that may read, and ends, with the reason, once the key is taken away or permits something else; over gRPC and
// over REST.
func TestWatchesEndWithTheirKey(t *testing.T) {
	for name, next := range map[string]struct {
		key    *Key // nil: taken away
		reason problem.Reason
	}{
		"taken away":       {nil, problem.Unauthenticated},
		"other namespaces": {&Key{Team: "red", Namespaces: []string{"prod"}, Scopes: []Scope{ScopeRead}}, problem.Unavailable},
		"another team":     {&Key{Team: "blue", AllNamespaces: true, Scopes: []Scope{ScopeRead}}, problem.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keys.yaml")
			token, entry, err := NewToken(Key{Name: "n", Team: "red", AllNamespaces: true, Scopes: []Scope{ScopeRead}})
			must.Succeed(t, err)
			must.Succeed(t, os.WriteFile(path, entry, 0o600))
			now := clocktesting.NewFakeClock(time.Now())
			auth, err := newAuthenticator(path, now, testlog.New(t))
			must.Succeed(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			running := make(chan error, 1)
			go func() { running <- auth.Run(ctx) }()
			defer func() { cancel(); must.Succeed(t, <-running) }()
			base := serveAPI(t, newFleet(t, "default/demo"), Options{Auth: auth})

			client := sandboxv1.NewSandboxesClient(testserver.Dial(t, strings.TrimPrefix(base, "http://")))
			authorized := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
			stream, err := client.WatchSandboxes(authorized, &sandboxv1.WatchSandboxesRequest{})
			must.Succeed(t, err)
			first, err := stream.Recv()
			if must.Succeed(t, err); first.GetType() != sandboxv1.SandboxEvent_BOOKMARK || len(first.GetUnreachableClusters()) != 1 {
				t.Errorf("the first event is %v", first)
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/sandboxes?watch=true", nil)
			must.Succeed(t, err)
			r.Header.Set("Authorization", "Bearer "+token)
			resp, err := http.DefaultClient.Do(r)
			must.Succeed(t, err)
			defer resp.Body.Close()
			events := bufio.NewScanner(resp.Body)
			if events.Scan(); !events.Scan() || events.Text() != "event: BOOKMARK" { // after its id
				t.Fatalf("the second line is %q", events.Text())
			}

			_, another, err := NewToken(Key{Name: "another", Team: "red", Scopes: []Scope{ScopeRead}})
			must.Succeed(t, err)
			text := string(another)
			if next.key != nil {
				// The entry of the same token with other permissions.
				text = strings.Replace(string(entry), "team: red", "team: "+next.key.Team, 1)
				if len(next.key.Namespaces) > 0 {
					text = strings.Replace(text, "allNamespaces: true", "namespaces: [prod]", 1)
				}
			}
			must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
			over := make(chan error, 1)
			go func() { _, err := stream.Recv(); over <- err }()
			wait.For(t, 20*time.Second, "the watch to end", func(context.Context) error {
				now.Step(rereadEvery)
				select {
				case err := <-over:
					if got := problem.FromError(err).Reason; got != next.reason {
						t.Errorf("it ended with %v", err)
					}
					return nil
				default:
					return wait.If(false, "it goes on")
				}
			})
			var lines []string
			for events.Scan() {
				lines = append(lines, events.Text())
			}
			if all := strings.Join(lines, "\n"); !strings.Contains(all, "event: ERROR") || !strings.Contains(all, `"`+string(next.reason)+`"`) {
				t.Errorf("over REST it ended with\n%s", all)
			}
		})
	}
}
