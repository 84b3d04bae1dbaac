// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

// crier sends events, and keeps what it was asked for.
type crier struct {
	echo
	asked chan *sandboxv1.WatchSandboxesRequest
	cry   func(context.Context, func(*sandboxv1.SandboxEvent) error) error
}

func (c *crier) WatchSandboxes(r *sandboxv1.WatchSandboxesRequest, stream grpc.ServerStreamingServer[sandboxv1.SandboxEvent]) error {
	select {
	case c.asked <- r:
	default:
	}
	return c.cry(stream.Context(), stream.Send)
}

func (*crier) ListSandboxes(_ context.Context, r *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	return &sandboxv1.ListSandboxesResponse{Sandboxes: []*sandboxv1.Sandbox{{Id: "listed"}}}, nil
}

func startCrier(
	t *testing.T, cry func(context.Context, func(*sandboxv1.SandboxEvent) error) error, change ...func(*Options),
) (*crier, string) {
	t.Helper()
	c := &crier{asked: make(chan *sandboxv1.WatchSandboxesRequest, 8), cry: cry}
	address := start(t, append([]func(*Options){func(o *Options) { o.Services = Public(c, echo{}, echo{}, echo{}, echo{}) }}, change...)...)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return c, "http://" + address
}

func get(t *testing.T, url string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must.Succeed(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// A list with watch=true is a stream of events, each with the token after which a later one goes on; its end is one too.
func TestWatchesAreServerSentEvents(t *testing.T) {
	var authorized []string
	c, base := startCrier(t, func(ctx context.Context, send func(*sandboxv1.SandboxEvent) error) error {
		for _, e := range []*sandboxv1.SandboxEvent{
			{Type: sandboxv1.SandboxEvent_ADDED, ResumeToken: "t1", Sandbox: &sandboxv1.Sandbox{Id: "a", Team: "two\nlines"}},
			{Type: sandboxv1.SandboxEvent_BOOKMARK, ResumeToken: "t2", UnreachableClusters: []string{"west"}},
		} {
			if err := send(e); err != nil {
				return err
			}
		}
		return problem.New(problem.Unavailable, "going away")
	}, func(o *Options) {
		o.Stream = []grpc.StreamServerInterceptor{
			func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
				authorized = append(authorized, info.FullMethod, metadata.ValueFromIncomingContext(stream.Context(), "authorization")[0])
				return handler(srv, stream)
			},
		}
	})
	resp := get(t, //nolint:bodyclose // get closes it
		base+"/v1/sandboxes?watch=true&env=demo&labelSelector=app%3Dweb&metadataSelector=a=b&readMask=id",
		"Authorization", "Bearer x", "Last-Event-ID", "t0")
	text := must.Read(t, resp.Body)
	if h := resp.Header; resp.StatusCode != 200 || h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v", resp.StatusCode, h)
	}
	events := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(text), `": `, `":`)), "\n\n")
	for i, want := range []string{
		"id: t1\nevent: ADDED\ndata: {", "id: t2\nevent: BOOKMARK\ndata: {", "event: ERROR\ndata: {\"type\":\"about:blank\"",
	} {
		if i >= len(events) || !strings.HasPrefix(events[i], want) || strings.Count(events[i], "\n") > 2 {
			t.Errorf("event %d is\n%s\nwant %s", i, text, want)
		}
	}
	if !strings.Contains(string(text), `"reason":"UNAVAILABLE"`) || !strings.Contains(string(text), "west") {
		t.Errorf("the events are\n%s", text)
	}
	r := <-c.asked
	if r.GetResumeToken() != "t0" || r.GetEnv() != "demo" || r.GetLabelSelector() != "app=web" || r.GetMetadataSelector()[0] != "a=b" ||
		r.GetReadMask().GetPaths()[0] != "id" {
		t.Errorf("asked for %v", r)
	}
	if strings.Join(authorized, " ") != "/atoll.sandbox.v1.Sandboxes/WatchSandboxes Bearer x" {
		t.Errorf("the interceptors saw %v", authorized)
	}
	for path, want := range map[string]string{
		"watch=false": "listed", "watch=yes": "true or false", "watch=true&pageSize=3": "nothing, with watch=true",
		"watch=true&colour=red": "one of: clusterId", "watch=true&phase=ASLEEP": "one of: PENDING", "watch=true&orderBy=id": `"value":"id"`,
	} {
		resp := get(t, base+"/v1/sandboxes?"+path) //nolint:bodyclose // get closes it
		if text := must.Read(t, resp.Body); !strings.Contains(string(text), want) || (resp.StatusCode == 400) == (path == "watch=false") {
			t.Errorf("?%s: %d %s", path, resp.StatusCode, text)
		}
	}
}

// A list with a mask has what its caller asked for, and its own fields.
func TestAListWithAMask(t *testing.T) {
	_, base := startCrier(t, nil)
	resp := get(t, base+"/v1/sandboxes?readMask=id") //nolint:bodyclose // get closes it
	if text := string(must.Read(t, resp.Body)); text != `{"nextPageToken":"","sandboxes":[{"id":"listed"}],"unreachableClusters":[]}` {
		t.Errorf("it is %s", text)
	}
}

// What a watch is refused for before its first event is an ordinary problem.
func TestAWatchThatIsRefused(t *testing.T) {
	_, base := startCrier(t, func(context.Context, func(*sandboxv1.SandboxEvent) error) error {
		return problem.New(problem.Expired, "too old")
	})
	resp := get(t, base+"/v1/sandboxes?watch=1&resumeToken=x") //nolint:bodyclose // get closes it
	if text := must.Read(t, resp.Body); resp.StatusCode != http.StatusGone || resp.Header.Get("Content-Type") != problem.ContentType ||
		!strings.Contains(string(text), `"EXPIRED"`) {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, text)
	}
}

// TestI14: a caller that does not take its events loses its connection, and one that leaves ends its watch.
func TestI14AWatchThatIsNotTaken(t *testing.T) {
	ended := make(chan error, 1)
	_, base := startCrier(t, func(ctx context.Context, send func(*sandboxv1.SandboxEvent) error) error {
		for {
			err := send(&sandboxv1.SandboxEvent{Sandbox: &sandboxv1.Sandbox{Id: strings.Repeat("x", 64<<10)}})
			if err != nil || ctx.Err() != nil {
				ended <- fmt.Errorf("%w, %w", err, ctx.Err())
				return err
			}
		}
	}, func(o *Options) { o.Limits.BodyTimeout = time.Second })
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	must.Succeed(t, err)
	defer conn.Close()
	_, err = fmt.Fprint(conn, "GET /v1/sandboxes?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
	must.Succeed(t, err)
	wait.For(t, 20*time.Second, "the watch to end", func(context.Context) error {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("it ended without a reason")
			}
			return nil
		default:
			return wait.If(false, "it goes on")
		}
	})
	resp := get(t, base+"/v1/sandboxes?watch=true")
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Error(err)
	}
	must.Succeed(t, resp.Body.Close())
	wait.For(t, 20*time.Second, "the watch of a caller that left to end", func(context.Context) error {
		return wait.If(len(ended) == 1, "it goes on")
	})
}
