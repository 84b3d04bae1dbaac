// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/problem"
)

func TestPathsAreReadAsTheyWereWritten(t *testing.T) {
	for path, want := range map[string]*target{
		"/v1/sandboxes/a-east/logs":      {id: "a-east", what: "logs"},
		"/v1/sandboxes/a-east/exec":      {id: "a-east", what: "exec"},
		"/v1/sandboxes/a-east/ports/80":  {id: "a-east", what: "ports", port: "80", base: "/v1/sandboxes/a-east/ports/80"},
		"/v1/sandboxes/a-east/ports/80/": {id: "a-east", what: "ports", port: "80", base: "/v1/sandboxes/a-east/ports/80", rest: "/"},
		"/v1/sandboxes/a-east/ports/80//x/..%2fy": {id: "a-east", what: "ports", port: "80", base: "/v1/sandboxes/a-east/ports/80",
			rest: "//x/..%2fy"},
		"/v1/sandboxes/a-east":        nil,
		"/v1/sandboxes/a-east:touch":  nil,
		"/v1/sandboxes/a-east/logs/x": nil,
		"/v1/envs/a/logs":             nil,
	} {
		got, ok := parse(path)
		if ok != (want != nil) {
			t.Errorf("%s is a path of this handler: %t", path, ok)
		} else if ok {
			if diff := cmp.Diff(*want, got, cmp.AllowUnexported(target{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		}
	}
}

// Callers of the daemon's port need what they need for exec.
func TestTheDaemonsPortIsProcesses(t *testing.T) {
	h := NewHandler(noOpener{}, logr.Discard())
	h.Domain = "sandboxes.example"
	for address, want := range map[string]string{
		"http://hub.example/v1/sandboxes/a/ports/8000/":         "ports",
		"http://hub.example/v1/sandboxes/a/ports/49983":         "processes",
		"http://hub.example/v1/sandboxes/a/ports/49983/init":    "processes",
		"http://hub.example/v1/sandboxes/a/ports/049983/init":   "processes",
		"http://hub.example/v1/sandboxes/a/ports/%34998%33/":    "ports", // which is no port
		"http://hub.example/v1/sandboxes/a/ports/499830/":       "ports",
		"http://49983-a.sandboxes.example/process.Process/List": "processes",
		"http://0049983-a.sandboxes.example/":                   "processes",
		"http://8000-a.sandboxes.example/":                      "ports",
		"http://hub.example/v1/sandboxes/a/files?path=x":        "files",
		"http://hub.example/v1/sandboxes/a/exec":                "exec",
	} {
		c, ok := h.Match(httptest.NewRequest(http.MethodGet, address, nil)).(conversation)
		if !ok || c.Kind() != want {
			t.Errorf("%s is a conversation: %t, of the kind %q, want %q", address, ok, c.Kind(), want)
		}
	}
}

// noOpener reaches no sandbox.
type noOpener struct{}

func (noOpener) Open(context.Context, string, *federationv1.ReachCall) (Tunnel, error) {
	return nil, problem.New(problem.NotFound, "no sandbox")
}

func TestRefusalsAreProblems(t *testing.T) {
	h := NewHandler(noOpener{}, logr.Discard())
	var body string
	ask := func(method, path string, header ...string) int {
		r := httptest.NewRequest(method, "http://hub.example"+path, nil)
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.Match(r).ServeHTTP(w, r)
		if kind := w.Header().Get("Content-Type"); w.Code >= 400 && kind != problem.ContentType {
			t.Errorf("%s %s is answered %d of type %s", method, path, w.Code, kind)
		}
		body = w.Body.String()
		return w.Code
	}
	socket := []string{"Connection", "Upgrade", "Upgrade", "websocket"}
	for _, c := range []struct {
		method, path string
		header       []string
		want         int
	}{
		{"GET", "/v1/sandboxes/a/logs", nil, 404},
		{"POST", "/v1/sandboxes/a/logs", nil, 405},
		{"GET", "/v1/sandboxes/a/logs?since=yesterday", nil, 400},
		{"GET", "/v1/sandboxes/a/exec?command=ls", nil, 400},
		{"GET", "/v1/sandboxes/a/exec?command=ls", socket, 400},
		{"GET", "/v1/sandboxes/a/exec", append(socket, "Sec-WebSocket-Protocol", ExecProtocol), 400},
		{"GET", "/v1/sandboxes/a/exec?command=ls", append(socket, "Sec-WebSocket-Protocol", "v1.other, "+ExecProtocolV4), 404},
		{"GET", "/v1/sandboxes/a/ports/0/", nil, 400},
		{"GET", "/v1/sandboxes/a/ports/65536/", nil, 400},
		{"GET", "/v1/sandboxes/a/ports/80", nil, http.StatusPermanentRedirect},
		{"DELETE", "/v1/sandboxes/a/ports/80/x", nil, 404},
		{"GET", "/v1/sandboxes/a/ports/80/", []string{"Origin", "https://evil.example"}, 403},
		{"GET", "/v1/sandboxes/a/ports/80/", []string{"Origin", "http://hub.example"}, 404},
		{"POST", "/v1/sandboxes/a/ports/80/", []string{"Origin", "null", "Sec-Fetch-Site", "cross-site"}, 403}, // a sandbox's own page
		{"POST", "/v1/sandboxes/a/ports/80/", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"GET", "/v1/sandboxes/a/ports/80/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 404}, // its script
		{"GET", "/v1/sandboxes/a/logs", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"GET", "/v1/sandboxes/a/exec?command=ls", append(socket, "Origin", "null", "Sec-WebSocket-Protocol", ExecProtocol), 403},
		{"GET", "/v1/sandboxes/a/ports/80", append(socket, "Sec-Fetch-Site", "cross-site", "Sec-WebSocket-Protocol", TCPProtocol), 403},
	} {
		if got := ask(c.method, c.path, c.header...); got != c.want {
			t.Errorf("%s %s %v is answered %d, want %d", c.method, c.path, c.header, got, c.want)
		}
	}
	// A parameter that is not known is named, with the one that is most like it.
	const ofLogs, ofExec = "container, runtime, follow, tail, since, timestamps", "command, container, stdin, stdout, stderr, tty"
	for path, want := range map[string]string{
		"logs?tial=5":                        `"field":"tial","value":"5","valid":"tail; there are: ` + ofLogs + `"`,
		"exec?command=ls&colour=x":           `"field":"colour","value":"x","valid":"one of: ` + ofExec + `"`, // it is like none
		"exec?command=ls&containers=sidecar": `"field":"containers","value":"sidecar","valid":"container; there are: ` + ofExec + `"`,
	} {
		got := ask("GET", "/v1/sandboxes/a/"+path, append(socket, "Sec-WebSocket-Protocol", ExecProtocol)...)
		if got != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s is answered %d %s, want %s", path, got, body, want)
		}
	}
	h.Close()
	if got := ask("GET", "/v1/sandboxes/a/logs"); got != http.StatusServiceUnavailable {
		t.Errorf("a server that ends answers %d", got)
	}
}

func TestAReasonFitsACloseMessage(t *testing.T) {
	if _, text := closeCode(problem.New(problem.NotFound, "%s", strings.Repeat("ä", 200))); len(text) > maxReason ||
		!strings.HasPrefix(text, "ää") {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

// closed records the reason of Close.
type closed struct {
	Tunnel
	reason chan error
}

func (c closed) Close(reason error) { c.reason <- reason }

func (c closed) Open(context.Context, string, *federationv1.ReachCall) (Tunnel, error) { return c, nil }

// Conversations end with their request if that is cancelled with a reason; they notice a caller that disconnects themselves.
func TestConversationsAreExpelled(t *testing.T) {
	c := closed{reason: make(chan error, 1)}
	h := NewHandler(c, logr.Discard())
	expelled := problem.New(problem.Unauthenticated, "the key expired")
	for _, cause := range []error{nil, error(expelled)} {
		request, end := context.WithCancelCause(t.Context())
		_, err := h.open(request, "a", nil)
		must.Succeed(t, err)
		end(cause)
		if cause != nil {
			if got := <-c.reason; !errors.Is(got, cause) {
				t.Errorf("closed with %v", got)
			}
		}
	}
	select {
	case got := <-c.reason:
		t.Errorf("closed with %v when the caller left", got)
	default:
	}
	h.Close()
}

// speaking is a port that says one thing to a request and then waits for its end.
type speaking struct {
	Tunnel
	say          string
	said         bool
	sent, closed context.Context
	send, end    context.CancelFunc
}

func newSpeaking(t *testing.T, say string) *speaking {
	s := &speaking{say: say}
	s.sent, s.send = context.WithCancel(t.Context())
	s.closed, s.end = context.WithCancel(t.Context())
	return s
}

func (s *speaking) Open(context.Context, string, *federationv1.ReachCall) (Tunnel, error) {
	return s, nil
}
func (s *speaking) CloseSend() error { return nil }
func (s *speaking) Close(error)      { s.end() }

func (s *speaking) Send([]byte) error {
	s.send()
	return nil
}

func (s *speaking) Recv() ([]byte, error) {
	if !s.said {
		<-s.sent.Done()
		s.said = true
		return []byte(s.say), nil
	}
	<-s.closed.Done()
	return nil, io.EOF
}

func TestI14ATunnelEndsWithItsRequest(t *testing.T) {
	for name, c := range map[string]struct {
		says string
		want int
	}{
		"a response":               {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200},
		"an unasked switch":        {"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", 503},
		"a switch to what is none": {"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: \u2028\r\n\r\n", 503},
	} {
		t.Run(name, func(t *testing.T) {
			port := newSpeaking(t, c.says)
			h := NewHandler(port, logr.Discard())
			defer h.Close()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.Match(r).ServeHTTP(w, r) }))
			defer server.Close()
			response, err := server.Client().Get(server.URL + "/v1/sandboxes/a/ports/80/")
			must.Succeed(t, err)
			must.Succeed(t, response.Body.Close())
			if response.StatusCode != c.want {
				t.Errorf("status %d, want %d", response.StatusCode, c.want)
			}
			<-port.closed.Done()
		})
	}
}
