// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"navix.sh/atoll/pkg/problem"
)

// codes records every written header, informational ones included.
type codes struct {
	*httptest.ResponseRecorder
	written []int
}

func (c *codes) WriteHeader(code int) {
	c.written = append(c.written, code)
	c.ResponseRecorder.WriteHeader(code)
}

// respond sends a request to a sandbox, and returns the response as a caller gets it.
func respond(t *testing.T, host, path, response string) (*codes, string) {
	t.Helper()
	sandbox := &responder{respond: func(w io.Writer) error {
		_, err := io.WriteString(w, response)
		return err
	}}
	h := NewHandler(sandbox, logr.Discard())
	h.Domain = "localhost"
	defer h.Close()
	r := httptest.NewRequest(http.MethodGet, "http://"+host+path, nil)
	r.Header.Set("Cookie", "of=host")
	r.Header.Set("Sec-Fetch-Site", "none")
	w := &codes{ResponseRecorder: httptest.NewRecorder()}
	handler := h.Match(r)
	if handler == nil {
		t.Fatalf("%s%s is not for a sandbox", host, path)
	}
	handler.ServeHTTP(w, r)
	sandbox.under.Wait()
	return w, sandbox.asked
}

const hubHost = "hub.example:8080"

// A sandbox's response affects only its own path in a browser, not the host, where exec and other sandboxes are.
func TestASandboxSpeaksForItselfAlone(t *testing.T) {
	const response = "HTTP/1.1 103 Early Hints\r\nSet-Cookie: early=1; Path=/\r\n\r\n" +
		"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Security-Policy: default-src 'self'\r\nService-Worker-Allowed: /\r\n" +
		"Clear-Site-Data: \"*\"\r\nAlt-Svc: h3=\":443\"\r\nStrict-Transport-Security: max-age=1\r\nNEL: {}\r\nReport-To: {}\r\nSet-Cookie2: " +
		"x=y\r\n" + problem.Header + ": NOT_FOUND\r\n" +
		"Set-Cookie: a=b; Path=/; Domain=hub.example\r\nSet-Cookie: c=d; Path=/../../x\r\n\r\nbody"
	at := func(host, path, base string) {
		t.Helper()
		w, asked := respond(t, host, path, response)
		if !strings.HasPrefix(asked, "GET /v1/clusters?x=1 HTTP/1.1") {
			t.Errorf("%s: the sandbox is asked for %.40q", host, asked)
		}
		if strings.Contains(asked, "of=host") != (base == "") {
			t.Errorf("%s: the sandbox is shown %q", host, asked)
		}
		if w.Code != 200 || len(w.written) != 1 || w.Body.String() != "body" {
			t.Errorf("%s: %v %s", host, w.written, w.Body)
		}
		for _, name := range append(OriginWide(), problem.Header) {
			if values := w.Header().Values(name); len(values) > 0 {
				t.Errorf("%s: %s: %q", host, name, values)
			}
		}
		if got := strings.Join(w.Header().Values("Set-Cookie"), ", "); got != "a=b; Path="+base+"/, c=d; Path="+base+"/x" {
			t.Errorf("%s: cookies %s", host, got)
		}
		policies := strings.Join(w.Header().Values("Content-Security-Policy"), ", ")
		if apart := strings.Contains(policies, ", sandbox "); !strings.HasPrefix(policies, "default-src 'self'") || apart != (base != "") ||
			strings.Contains(policies, "allow-same-origin") {
			t.Errorf("%s: policies %s", host, policies)
		}
	}
	const base = "/v1/sandboxes/01h-east/ports/80"
	at(hubHost, base+"/v1/clusters?x=1", base)
	at("80-01h-east.localhost:8080", "/v1/clusters?x=1", "")
}

// A caller that follows a redirect sends the credentials for Atoll again, and may repeat its request.
func TestRedirectsLeadBelowThePort(t *testing.T) {
	const base = "/v1/sandboxes/01h-east/ports/80"
	for location, want := range map[string]string{
		"/login?x=1#y":                             base + "/login?x=1#y",
		"login":                                    base + "/app/login",
		"../../../../../../clusters/east:drain":    base + "/clusters/east:drain",
		"/../../../../../clusters/east:drain":      base + "/clusters/east:drain",
		"/%2e%2e/%2E./%2e%2e/..%2f../../v1":        base + "/v1",
		"/a%2Fb/c%20d":                             base + "/a%2Fb/c%20d",
		"/\\..\\..":                                base + "/%5C..%5C..",
		"http://localhost:80/login":                base + "/login",
		"http://" + hubHost + "/v1/clusters":       base + "/v1/clusters",
		"//HUB.example:8080/v1/clusters":           base + "/v1/clusters",
		"https://" + hubHost + base + "/x":         base + "/x",
		"http://" + hubHost + base + "/../../exec": base + "/v1/sandboxes/01h-east/exec",
		"?x":                       base + "/app/?x",
		"https://other.example/..": "https://other.example/..",
		"http://192.0.2.1:80/":     "http://192.0.2.1:80/",
		"http://a b:c":             "",
		"%zz":                      "",
		// The same host, for a client, at this port or at another one.
		"https://hub.example:08080/v1/clusters": base + "/v1/clusters",
		"https://hub.example:443/v1/clusters":   base + "/v1/clusters",
		"https://hub.example:/v1/clusters":      base + "/v1/clusters",
		"//Hub.Example./v1/clusters":            base + "/v1/clusters",
		// What some clients take for a path of the host, or for another spelling of it.
		"https:/v1/clusters":                "",
		"https:v1/clusters":                 "",
		"https:///hub.example/v1":           "",
		"https:\\\\hub.example\\v1":         "",
		"//:8080/v1":                        "",
		"https://\uff48ub.example/v1":       "",
		"https://hub.example\u3002/v1":      "",
		"https://3221225985/v1":             "",
		"https://0xc0.0.0x201/v1":           "",
		"\r\nLocation: https://hub.example": "",
	} {
		w, _ := respond(t, hubHost, base+"/app/", "HTTP/1.1 307 Temporary Redirect\r\nLocation: "+location+"\r\nContent-Length: 0\r\n\r\n")
		if got := strings.Join(w.Header().Values("Location"), ", "); got != want || w.Code != http.StatusTemporaryRedirect {
			t.Errorf("%q leads to %q (%d), want %q", location, got, w.Code, want)
		}
	}
	// An address has many spellings.
	for location, want := range map[string]string{
		"http://[0:0::1]:80/v1": base + "/v1", "http://[::1]/v1": base + "/v1", "http://[::2]/v1": "http://[::2]/v1",
	} {
		w, _ := respond(t, "[::1]:8080", base+"/app/", "HTTP/1.1 302 Found\r\nLocation: "+location+"\r\nContent-Length: 0\r\n\r\n")
		if got := w.Header().Get("Location"); got != want {
			t.Errorf("at [::1], %q leads to %q, want %q", location, got, want)
		}
	}
	// A host of its own needs no limits.
	w, _ := respond(t, "80-01h-east.localhost", "/app/",
		"HTTP/1.1 302 Found\r\nLocation: //80-01h-east.localhost//x/../y\r\nContent-Length: 0\r\n\r\n")
	if got := w.Header().Get("Location"); got != "/y" {
		t.Errorf("at a host of its own it leads to %q", got)
	}
}

// A port gets a query as its caller wrote it, also one that Go does not parse.
func TestAPortGetsTheQueryAsItWasWritten(t *testing.T) {
	for _, query := range []string{"", "?b=2&a=1", "?a=1;b=2", "?b=2&a=1;c", "?share=100%", "?a=%zz&b"} {
		_, asked := respond(t, hubHost, "/v1/sandboxes/01h-east/ports/80/at"+query, "HTTP/1.1 204 No Content\r\n\r\n")
		if line, _, _ := strings.Cut(asked, "\r\n"); line != "GET /at"+query+" HTTP/1.1" {
			t.Errorf("%q: the port is asked for %q", query, line)
		}
	}
}
