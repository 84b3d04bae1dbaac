// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
)

// A page that a user opens must not do what the user can: without credentials the browser's headers are the only evidence.
func TestPagesOfOthersHaveNoAccess(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	open := start(t, func(o *Options) { o.Web.Hosts = []string{"hub.example"} })
	keyed := start(t, secured)
	_, port, _ := strings.Cut(open, ":")
	const evil, create = "https://evil.example", `{"env":"demo"}`
	for i, c := range []struct {
		address, method, path, host string
		header                      []string
		code                        int
	}{
		// A form, or a fetch without a preflight, of another site.
		{open, "POST", "/v1/sandboxes", "", []string{"Origin", evil, "Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain"}, 403},
		{open, "POST", "/v1/sandboxes", "", []string{"Origin", "null", "Content-Type", "application/json"}, 403},
		{open, "POST", "/v1/sandboxes", "", []string{"Origin", "http://localhost:1", "Sec-Fetch-Site", "same-site", "Content-Type",
			"application/json"}, 403},
		{open, "POST", "/v1/sandboxes", "", []string{"Sec-Fetch-Site", "cross-site", "Content-Type", "application/json"}, 403},
		{open, "POST", "/v1/clusters/east:drain", "", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{open, "POST", "/v1/sandboxes", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"},
			403},
		{open, "GET", "/v1/sandboxes", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{open, "GET", "/v1/sandboxes", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"},
			403},
		{open, "POST", "/v1/sandboxes", "", []string{"Content-Type", "text/plain"}, 400},
		{open, "POST", "/v1/sandboxes", "", []string{"Sec-Fetch-Site", "same-origin"}, 400}, // JSON, and declared so
		// A name that is rebound, and names of ours.
		{open, "GET", "/v1/claims/k", "evil.example:" + port, nil, 403},
		{open, "GET", "/v1/extra/7", "evil.example:" + port, nil, 403},
		{open, "GET", "/healthz", "localhost.evil.example", nil, 403},
		{open, "GET", "/v1/claims/k", "localhost:" + port, nil, 200},
		{open, "GET", "/v1/claims/k", "LOCALHOST.:" + port, nil, 200},
		{open, "GET", "/v1/claims/k", "[::1]:" + port, nil, 200},
		{open, "GET", "/v1/claims/k", "hub.example", nil, 200},
		{open, "GET", "/v1/claims/k", "80-01h-east.localhost:" + port, nil, 404}, // a sandbox's host, and no sandboxes here
		// Callers.
		{open, "POST", "/v1/sandboxes", "", nil, 200},
		{open, "POST", "/v1/sandboxes", "", []string{"Origin", "http://" + open, "Sec-Fetch-Site", "same-origin", "Content-Type",
			"application/json"}, 200},
		{open, "GET", "/v1/claims/k", "", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{open, "GET", "/v1/claims/k", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"},
			200},
		// With credentials every name is accepted: a browser sends them only where they were entered.
		{keyed, "GET", "/v1/claims/k", "hub.example", []string{"Authorization", "a"}, 200},
		{keyed, "POST", "/v1/sandboxes", "", []string{"Authorization", "a", "Origin", evil, "Content-Type", "application/json"}, 403},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+c.address+c.path, nil)
		if c.method == "POST" && !strings.Contains(c.path, ":") {
			req, err = http.NewRequestWithContext(t.Context(), c.method, "http://"+c.address+c.path, strings.NewReader(create))
		}
		must.Succeed(t, err)
		req.Host = c.host
		for pair := range slices.Chunk(c.header, 2) {
			req.Header.Set(pair[0], pair[1])
		}
		resp, err := client.Do(req)
		must.Succeed(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != c.code {
			t.Errorf("%d: %s %s at %q with %q: %d, want %d", i, c.method, c.path, c.host, c.header, resp.StatusCode, c.code)
		}
	}
}

// A page's requests are HTTP/1.1, also over TLS, where browsers offer HTTP/2 too. No such request is a gRPC call.
func TestPagesCannotUseGRPC(t *testing.T) {
	cert, roots := selfSigned(t)
	conn, err := tls.Dial("tcp", start(t, func(o *Options) { o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}} }),
		&tls.Config{RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	if got := conn.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("a browser gets %q", got)
	}

	served, base, client := startKept(t)
	message, err := proto.Marshal(&sandboxv1.CreateSandboxRequest{Env: "demo"})
	must.Succeed(t, err)
	framed := string(append([]byte{0, 0, 0, 0, byte(len(message))}, message...))
	for _, c := range []struct {
		kind, body string
		code       int
	}{
		{"application/grpc", framed, 400}, {"application/grpc+proto", framed, 400}, {"application/grpc-web+proto", framed, 400},
		{"application/grpc-web-text", base64.StdEncoding.EncodeToString([]byte(framed)), 400}, {"application/json", `{"env":"demo"}`, 404},
	} {
		code, body, _ := rest(t, client, "POST", base+createMethod, c.body, "Content-Type", c.kind, "Origin", base,
			"Sec-Fetch-Site", "same-origin")
		if code != c.code || served.create != nil {
			t.Errorf("%s: %d %s, want %d; served %v", c.kind, code, body, c.code, served.create)
		}
	}
}

func TestSandboxHost(t *testing.T) {
	for host, want := range map[string]string{
		"8000-01h-east.localhost:8080": "8000 01h-east", "8000-01H-East.LocalHost.": "8000 01h-east", "8000-01h-east.other": "",
		"x-01h-east.localhost": "", "70000-01h-east.localhost": "", "8000.localhost": "", "8000-a.b.localhost": "", "localhost": "", "": "",
	} {
		got := ""
		if port, id, ok := SandboxHost(host, "localhost"); ok {
			got = fmt.Sprint(port, " ", id)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
	if _, _, ok := SandboxHost("80-a.", ""); ok {
		t.Error("without a domain there are no hosts")
	}
}

func TestWebIsValidated(t *testing.T) {
	for _, c := range []struct {
		web Web
		ok  bool
	}{
		{Web{Hosts: []string{"hub.example", "10.0.0.1", "fd00::1"}, SandboxDomain: "sandboxes.example"}, true},
		{Web{Hosts: []string{"hub.example:8080"}}, false}, {Web{Hosts: []string{"*"}}, false}, {Web{SandboxDomain: ".example"}, false},
	} {
		if err := c.web.Validate(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.web, err)
		}
	}
}
