// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/reach"
)

// tunnel is the worker's end of a tunnel whose other end is a TCP connection.
type tunnel struct {
	net.Conn
	buffer [reach.MaxMessage]byte
	once   sync.Once
	over   chan struct{}
}

func (t *tunnel) Recv() ([]byte, error) {
	n, err := t.Read(t.buffer[:])
	if errors.Is(err, io.EOF) {
		t.Close(nil) // the test closes both directions at once
		return nil, errors.New("over")
	}
	return t.buffer[:n], err
}

func (t *tunnel) Send(message []byte) error {
	_, err := t.Write(message)
	return err
}
func (t *tunnel) CloseSend() error     { return t.Conn.(*net.TCPConn).CloseWrite() }
func (t *tunnel) Cut() <-chan struct{} { return t.over }
func (t *tunnel) Hurry()               {}
func (t *tunnel) Close(error) {
	t.once.Do(func() {
		_ = t.Conn.Close()
		close(t.over)
	})
}

// world is an API server with the proxy before it.
type world struct {
	t     *testing.T
	proxy *Proxy
}

func newWorld(t *testing.T, handler http.HandlerFunc) *world {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	proxy, err := New(Options{Config: &rest.Config{Host: server.URL, BearerToken: "of-the-proxy"}, Prefix: DefaultPrefix, Log: logr.Discard()})
	must.Succeed(t, err)
	t.Cleanup(proxy.Close)
	return &world{t, proxy}
}

var alice = &federationv1.KubernetesCall{User: "user:alice", Groups: []string{"team:red"}}

// dial opens a tunnel, and returns the hub's end.
func (w *world) dial(call *federationv1.KubernetesCall) *net.TCPConn {
	w.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(w.t, err)
	defer listener.Close()
	hub, err := net.Dial("tcp", listener.Addr().String())
	must.Succeed(w.t, err)
	end, err := listener.Accept()
	must.Succeed(w.t, err)
	serve, _, err := w.proxy.Admit(call)
	must.Succeed(w.t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		serve(&tunnel{Conn: end, over: make(chan struct{})})
	}()
	w.t.Cleanup(func() {
		_ = hub.Close()
		<-served
	})
	return hub.(*net.TCPConn)
}

// reply is a response without its body.
type reply struct {
	Status     string
	StatusCode int
}

// ask sends a request as it is written, and reads the response.
func (w *world) ask(request string) (reply, []byte) {
	w.t.Helper()
	conn := w.dial(alice)
	_, err := io.WriteString(conn, request)
	must.Succeed(w.t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must.Succeed(w.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must.Succeed(w.t, err)
	must.Succeed(w.t, conn.Close())
	return reply{response.Status, response.StatusCode}, body
}

func TestNames(t *testing.T) {
	for name, c := range map[string]struct {
		user   string
		groups []string
		want   string // the user; empty: refused
	}{
		"a user":                   {"user:alice", []string{"group:devs", "team:red"}, "atoll:user:alice"},
		"a key":                    {"key:ci", nil, "atoll:key:ci"},
		"a ServiceAccount":         {"user:system:serviceaccount:ns:bot", nil, "atoll:user:system:serviceaccount:ns:bot"},
		"an administrator":         {"system:admin", nil, ""},
		"none":                     {"", nil, ""},
		"a kind alone":             {"user:", nil, ""},
		"no kind":                  {"alice", nil, ""},
		"a group as a user":        {"group:devs", nil, ""},
		"the masters":              {"user:alice", []string{"system:masters"}, ""},
		"a group without a kind":   {"user:alice", []string{"masters"}, ""},
		"an empty group":           {"user:alice", []string{""}, ""},
		"a line feed":              {"user:alice\r\nImpersonate-User: system:admin", nil, ""},
		"a NUL":                    {"user:a\x00", nil, ""},
		"no UTF-8":                 {"user:\xff", nil, ""},
		"blanks around":            {"user: alice ", nil, ""},
		"a long name":              {"user:" + strings.Repeat("a", maxName), nil, ""},
		"many groups":              {"user:alice", slices.Repeat([]string{"group:g"}, maxGroups+1), ""},
		"a line feed in a group":   {"user:alice", []string{"team:a\nb"}, ""},
		"a group of another user":  {"user:alice", []string{"user:bob"}, ""},
		"a name with the prefix":   {"atoll:user:alice", nil, ""},
		"as many groups as may be": {"user:alice", slices.Repeat([]string{"group:g"}, maxGroups), "atoll:user:alice"},
	} {
		who, err := identity(DefaultPrefix, c.user, c.groups)
		if who.User != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %+v, %v, want %q", name, who, err, c.want)
		}
		for _, group := range who.Groups {
			if !strings.HasPrefix(group, DefaultPrefix) {
				t.Errorf("%s: the group %q is not of Atoll", name, group)
			}
		}
	}
	for prefix, ok := range map[string]bool{
		"atoll:": true, "hub-2.example:": true, "": false, ":": false, "system:": false, "atoll": false, "Atoll:": false, "a:b:": false,
		"a\n:": false, strings.Repeat("a", 63) + ":": false,
	} {
		if err := CheckPrefix(prefix); (err == nil) != ok {
			t.Errorf("the prefix %q: %v", prefix, err)
		}
	}
}

// Whatever a request says about its maker, the API server gets the maker that the worker has set, and the worker's own token.
func TestHeadersThatSmuggleAnIdentity(t *testing.T) {
	got := make(chan http.Header, 1)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Clone() })
	for name, lines := range map[string][]string{
		"nothing":                    nil,
		"another user":               {"Impersonate-User: system:admin"},
		"in other letters":           {"iMPERSONATE-uSER: system:admin", "impersonate-group: system:masters"},
		"groups, uid and extra":      {"Impersonate-Group: system:masters", "Impersonate-Uid: 0", "Impersonate-Extra-Scopes: all"},
		"an underscore":              {"Impersonate_User: system:admin"},
		"named by Connection":        {"Connection: Impersonate-User, Impersonate-Group, Authorization", "Impersonate-User: system:admin"},
		"Connection, and keep-alive": {"Connection: keep-alive, Impersonate-User"},
		"a token":                    {"Authorization: Bearer stolen", "Proxy-Authorization: Bearer stolen"},
		"a cookie":                   {"Cookie: session=1"},
		"of a front proxy":           {"X-Remote-User: admin", "X-Remote-Group: system:masters", "X-Remote-Extra-Scopes: all"},
		"of other proxies":           {"X-Forwarded-User: admin", "Forwarded: for=10.0.0.1", "X-Forwarded-For: 10.0.0.1", "Via: 1.1 hub"},
		"a token as a subprotocol":   {"Sec-WebSocket-Protocol: v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c3RvbGVu"},
		"alone, in capitals":         {"Sec-WebSocket-Protocol: BASE64URL.BEARER.AUTHORIZATION.K8S.IO.c3RvbGVu"},
		"as a second line":           {"Sec-WebSocket-Protocol: v5", "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c3Rv"},
		"in a trailer":               {"Trailer: Impersonate-User", "TE: trailers"},
	} {
		t.Run(name, func(t *testing.T) {
			request := "GET /api/v1/pods HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\n" + strings.Join(append(lines, ""), "\r\n") + "\r\n"
			if response, body := w.ask(request); response.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s", response.Status, body)
			}
			header := <-got
			if of := header.Values("Authorization"); !slices.Equal(of, []string{"Bearer of-the-proxy"}) {
				t.Errorf("Authorization: %q", of)
			}
			for field, want := range map[string][]string{"Impersonate-User": {"atoll:user:alice"}, "Impersonate-Group": {"atoll:team:red"}} {
				if !slices.Equal(header.Values(field), want) {
					t.Errorf("%s: %q, want %q", field, header.Values(field), want)
				}
			}
			for field, values := range header {
				lower := strings.ToLower(strings.Join(values, ","))
				known := passing[field] || slices.Contains([]string{"Authorization", "Impersonate-User", "Impersonate-Group"}, field)
				if !known || strings.Contains(lower, "bearer.authorization") || strings.Contains(lower, "stolen") {
					t.Errorf("the API server got %s: %q", field, values)
				}
			}
			if header.Get("Accept") != "application/json" {
				t.Error("the header Accept is lost")
			}
		})
	}
}

func TestRefusedRequests(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("the request reached the API server") })
	for name, request := range map[string]string{
		"CONNECT":       "CONNECT evil:443 HTTP/1.1\r\nHost: h\r\n\r\n",
		"TRACE":         "TRACE / HTTP/1.1\r\nHost: h\r\n\r\n",
		"h2c":           "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		"a long header": "GET / HTTP/1.1\r\nHost: h\r\nAccept: " + strings.Repeat("a", 2*headerBytes) + "\r\n\r\n",
		"a blank":       "GET / HTTP/1.1\r\nHost: h\r\nImpersonate-User : system:admin\r\n\r\n",
		"two lengths":   "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
	} {
		if response, body := w.ask(request); response.StatusCode < 400 || response.StatusCode >= 500 {
			t.Errorf("%s: %s %s", name, response.Status, body)
		}
	}
	// An absolute target does not lead elsewhere.
	reached := newWorld(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
	if _, body := reached.ask("GET http://evil.example/api HTTP/1.1\r\nHost: evil.example\r\n\r\n"); string(body) != "/api" {
		t.Errorf("an absolute target led to %q", body)
	}
}

// The API server gets a query as its caller wrote it, also one that Go does not parse: an application behind it may read it.
func TestTheAPIServerGetsTheQueryAsItWasWritten(t *testing.T) {
	got := make(chan string, 1)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.RequestURI })
	for _, query := range []string{"", "?b=2&a=1", "?a=1;b=2", "?b=2&a=1;c", "?share=100%", "?a=%zz&b"} {
		target := "/api/v1/namespaces/n/services/s/proxy/" + query
		if response, body := w.ask("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n"); response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", response.Status, body)
		}
		if asked := <-got; asked != target {
			t.Errorf("the API server is asked for %q, want %q", asked, target)
		}
	}
}

// A refusal of the worker's own credentials must not look like one of the caller's.
func TestOwnCredentialsAreRefused(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	response, body := w.ask("GET /api HTTP/1.1\r\nHost: h\r\n\r\n")
	status := struct{ Kind, Message string }{}
	if err := json.Unmarshal(body, &status); err != nil || response.StatusCode != http.StatusBadGateway || status.Kind != "Status" ||
		!strings.Contains(status.Message, ServiceAccount) {
		t.Errorf("%s %s, %v", response.Status, body, err)
	}
}

// Large bodies pass in both directions, and nothing of a response is lost at its end.
func TestLargeBodies(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	sent := make([]byte, 3<<20)
	_, _ = rand.Read(sent)
	conn := w.dial(alice)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://h/api", bytes.NewReader(sent))
	must.Succeed(t, err)
	go func() { _ = request.Write(conn) }()
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	must.Succeed(t, err)
	defer response.Body.Close()
	if got, err := io.ReadAll(response.Body); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d came back: %v", len(got), len(sent), err)
	}
}

// Each piece of a watch arrives when it is sent; once its caller leaves it ends at the API server, and no place is kept.
func TestACancelledRequestIsCancelledAtTheAPIServer(t *testing.T) {
	for name, request := range map[string]string{
		"a watch":   "GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: h\r\n\r\n",
		"an upload": "POST /api/v1/pods HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("a", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).EnableFullDuplex()
				_, _ = io.WriteString(w, "event\n")
				_ = http.NewResponseController(w).Flush()
				if r.Method == http.MethodPost {
					_, err := io.Copy(io.Discard, r.Body)
					ended <- err
					return
				}
				<-r.Context().Done()
				ended <- r.Context().Err()
			})
			conn := w.dial(alice)
			_, err := io.WriteString(conn, request)
			must.Succeed(t, err)
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must.Succeed(t, err)
			defer response.Body.Close()
			first := make([]byte, len("event\n"))
			if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "event\n" {
				t.Fatalf("%q, %v", first, err)
			}
			must.Succeed(t, conn.Close())
			select {
			case err := <-ended:
				if err == nil {
					t.Error("the request ended as if it were complete")
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the request goes on at the API server")
			}
			wait.For(t, 10*time.Second, "the place to be free", func(context.Context) error {
				return wait.If(len(w.proxy.seats) == 0, len(w.proxy.seats))
			})
		})
	}
}

// An upgrade becomes a connection in both directions, which ends with either end.
func TestUpgrade(t *testing.T) {
	ended := make(chan struct{})
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		if r.Header.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" || r.Header.Get("Impersonate-User") != "atoll:user:alice" {
			t.Errorf("the header is %v", r.Header)
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "SPDY/3.1")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, rw)
	})
	conn := w.dial(alice)
	_, err := io.WriteString(conn, "POST /api/v1/exec HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+
		"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n")
	must.Succeed(t, err)
	from := bufio.NewReader(conn)
	response, err := http.ReadResponse(from, nil)
	must.Succeed(t, err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != "SPDY/3.1" {
		t.Fatalf("%s %v", response.Status, response.Header)
	}
	for _, text := range []string{"ping\n", "pong\n"} {
		_, err = io.WriteString(conn, text)
		must.Succeed(t, err)
		if got, err := from.ReadString('\n'); err != nil || got != text {
			t.Fatalf("%q, %v, want %q", got, err, text)
		}
	}
	must.Succeed(t, conn.Close())
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the conversation goes on at the API server")
	}
}

// I14: a worker takes no more requests than it has places for.
func TestI14ProxiedRequestsAreBounded(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	var leaves []func()
	for range maxRequests {
		_, leave, err := w.proxy.Admit(alice)
		must.Succeed(t, err)
		leaves = append(leaves, leave)
	}
	if _, _, err := w.proxy.Admit(alice); err == nil {
		t.Errorf("more than %d requests are taken", maxRequests)
	}
	for _, leave := range leaves {
		leave()
	}
	if n := len(w.proxy.seats); n != 0 {
		t.Errorf("%d places are kept", n)
	}
}
