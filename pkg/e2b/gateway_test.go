// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/sandboxd"
)

// front is a gateway before a server of the test.
func front(t *testing.T, api http.HandlerFunc) (*Gateway, *httptest.Server) {
	inside := NewInside()
	behind := &http.Server{Handler: api, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = behind.Serve(inside) }()
	g, err := New(Options{Dial: inside.Dial, Key: bytes.Repeat([]byte{7}, KeySize), Now: time.Now, Log: logr.Discard()})
	must.Succeed(t, err)
	server := httptest.NewServer(g)
	t.Cleanup(func() {
		server.Close()
		g.Close()
		_ = behind.Close()
		<-done
	})
	return g, server
}

// send makes a request of a client.
func send(t *testing.T, method, url, body string) (status int, header http.Header, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must.Succeed(t, err)
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	defer response.Body.Close()
	return response.StatusCode, response.Header, string(must.Read(t, response.Body))
}

func TestKeysHaveTheFormThatClientsCheck(t *testing.T) {
	token, _, err := access.NewToken()
	must.Succeed(t, err)
	key, err := ClientKey(token)
	if err != nil || !strings.HasPrefix(key, ClientPrefix) || strings.Trim(key[len(ClientPrefix):], "0123456789abcdef") != "" ||
		apiKey(key) != token {
		t.Errorf("%s becomes %s and then %s, %v", token, key, apiKey(key), err)
	}
	for _, cluster := range []string{"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmVk-_"} {
		if got := apiKey(ClientPrefix + hex.EncodeToString([]byte(cluster))); got != cluster || apiKey(cluster) != cluster {
			t.Errorf("a token of a cluster becomes %q", got)
		}
		if got := apiKey(ClientPrefix + hex.EncodeToString([]byte(cluster+"\r\nA: b"))); !strings.HasPrefix(got, access.TokenPrefix) {
			t.Errorf("what is no token becomes %q", got)
		}
	}
	for _, other := range []string{"", "x", "e2b_zz", "atoll_!"} {
		if _, err := ClientKey(other); err == nil {
			t.Errorf("%q is taken for a token", other)
		}
	}
}

func TestI14ASandboxNeverSeesItsCallersToken(t *testing.T) {
	got := make(chan *http.Request, 1)
	g, server := front(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r
		for _, name := range []string{"Set-Cookie", "Clear-Site-Data", "Alt-Svc", "Strict-Transport-Security"} {
			w.Header().Set(name, "x")
		}
		w.Header().Set("Location", r.URL.Path+"/next")
		w.WriteHeader(http.StatusFound)
	})
	token := g.sealer.seal("01-east", "atoll_key")
	for port, daemon := range map[string]bool{"49983": true, "8000": false} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/a%2Fb?q=1", nil)
		must.Succeed(t, err)
		request.SetBasicAuth("root", "")
		for name, value := range map[string]string{
			"X-Access-Token": token, "E2b-Sandbox-Id": "01-east", "E2b-Sandbox-Port": port, "X-Api-Key": "secret", sandboxd.UserHeader: "other",
			"Origin": "http://evil.example", "E2b-Traffic-Access-Token": token,
		} {
			request.Header.Set(name, value)
		}
		response, err := server.Client().Transport.RoundTrip(request)
		must.Succeed(t, err)
		_ = response.Body.Close()
		r := <-got
		if want := sandboxesPath + "/01-east/ports/" + port + "/a%2Fb"; r.URL.EscapedPath() != want || r.URL.RawQuery != "q=1" {
			t.Errorf("port %s: the path is %s?%s, want %s", port, r.URL.EscapedPath(), r.URL.RawQuery, want)
		}
		if r.Header.Get("Authorization") != "Bearer atoll_key" || (r.Header.Get(sandboxd.UserHeader) == "root") != daemon {
			t.Errorf("port %s: Authorization %q, user %q", port, r.Header.Get("Authorization"), r.Header.Get(sandboxd.UserHeader))
		}
		own := map[bool]string{true: sandboxd.Token(g.opts.Key, "01-east"), false: ""}[daemon]
		if r.Header.Get("X-Access-Token") != own {
			t.Errorf("port %s gets the token %q, want %q", port, r.Header.Get("X-Access-Token"), own)
		}
		for name, values := range r.Header {
			if text := strings.Join(values, " "); strings.Contains(text, token) || strings.Contains(text, "secret") || strings.Contains(text,
				"evil") {
				t.Errorf("port %s gets %s: %s", port, name, text)
			}
		}
		for _, name := range []string{"Set-Cookie", "Clear-Site-Data", "Alt-Svc", "Strict-Transport-Security"} {
			if response.Header.Get(name) != "" {
				t.Errorf("port %s sets %s for the gateway's origin", port, name)
			}
		}
	}
}

func TestATokenIsOfOneSandboxAndOneGateway(t *testing.T) {
	g, _ := front(t, func(http.ResponseWriter, *http.Request) {})
	token := g.sealer.seal("a", "key")
	other, err := newSealer(bytes.Repeat([]byte{8}, KeySize))
	must.Succeed(t, err)
	if key, err := g.sealer.open("a", token); err != nil || key != "key" {
		t.Errorf("its own: %q, %v", key, err)
	}
	if _, err := g.sealer.open("b", token); err == nil {
		t.Error("it opens another sandbox")
	}
	if _, err := other.open("a", token); err == nil {
		t.Error("another gateway takes it")
	}
}

func TestRefusalsHaveE2BsForm(t *testing.T) {
	_, server := front(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"detail":"too many","reason":"RATE_LIMITED"}`)
	})
	status, header, text := send(t, http.MethodGet, server.URL+"/v2/sandboxes", "")
	if status != http.StatusTooManyRequests || header.Get("Retry-After") != "2" ||
		strings.TrimSpace(text) != `{"code":429,"message":"too many"}` {
		t.Errorf("%d %v %s", status, header, text)
	}
}

// A create for which no Pod was idle in time is one that may come again.
func TestNoRoomIsBusy(t *testing.T) {
	for reason, want := range map[string]int{"DEADLINE": 503, "OUTCOME_UNKNOWN": 504} {
		_, server := front(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusGatewayTimeout)
			_, _ = io.WriteString(w, `{"detail":"none was idle","reason":"`+reason+`"}`)
		})
		status, header, text := send(t, http.MethodPost, server.URL+"/v2/sandboxes", `{"templateID":"a"}`)
		if status != want || (header.Get("Retry-After") == "2") != (want == 503) || !strings.Contains(text, "none was idle") {
			t.Errorf("%s: %d %v %s, want %d", reason, status, header, text, want)
		}
	}
}

// A create that fails releases the sandbox that it made. With a key, an earlier create may have returned the sandbox.
func TestACreateThatFailsReleasesOnlyItsOwnSandbox(t *testing.T) {
	for key, want := range map[string]string{"": "POST POST DELETE", "once": "POST POST"} {
		var calls []string
		_, server := front(t, func(w http.ResponseWriter, r *http.Request) {
			calls = append(calls, r.Method)
			switch {
			case r.URL.Path == sandboxesPath:
				_, _ = io.WriteString(w, `{"id":"01-east","phase":"RUNNING"}`)
			case r.Method == http.MethodDelete:
				_, _ = io.WriteString(w, `{}`)
			default:
				problem.New(problem.Misconfigured, "it is paused").Write(w)
			}
		})
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v2/sandboxes",
			strings.NewReader(`{"templateID":"a"}`))
		must.Succeed(t, err)
		if key != "" {
			request.Header.Set(keyHeader, key)
		}
		response, err := server.Client().Do(request)
		must.Succeed(t, err)
		_ = response.Body.Close()
		if got := strings.Join(calls, " "); got != want || response.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("with the key %q: %d, and the calls %s, want %s", key, response.StatusCode, got, want)
		}
	}
}

// TestTimeoutsOfE2B: they do not run in a pause, a connection never shortens them, and gives none to a sandbox without one.
func TestTimeoutsOfE2B(t *testing.T) {
	const running, paused = `"maxLifetime":"300s"`, `"maxLifetime":"2592000s","pause":{"state":"PAUSED"}`
	for name, tc := range map[string]struct{ sandbox, call, body, want string }{
		"pause":                     {running, "/v2/sandboxes/01-east/pause", "", "PATCH 2592000s, POST :pause"},
		"pause without a timeout":   {``, "/v2/sandboxes/01-east/pause", "", "POST :pause"},
		"a pause that fails":        {running + `,"env":"fails"`, "/v2/sandboxes/01-east/pause", "", "PATCH 2592000s, POST :pause, PATCH 300s"},
		"an unclear pause":          {running + `,"env":"unclear"`, "/v2/sandboxes/01-east/pause", "", "PATCH 2592000s, POST :pause"},
		"a pause again":             {`"maxLifetime":"300s","pause":{"state":"PAUSED"}`, "/v2/sandboxes/01-east/pause", "", "PATCH 2592000s"},
		"connect to what is paused": {paused, "/v2/sandboxes/01-east/connect", `{"timeout":60}`, "POST :resume, PATCH 60s, POST init"},
		"connect":                   {running, "/v2/sandboxes/01-east/connect", `{"timeout":60}`, "POST init"},
		"connect for longer":        {running, "/v2/sandboxes/01-east/connect", `{"timeout":600}`, "PATCH 600s, POST init"},
		"connect without a timeout": {``, "/v2/sandboxes/01-east/connect", `{"timeout":60}`, "POST init"},
		"refresh without a timeout": {``, "/sandboxes/01-east/refreshes", `{"duration":60}`, ""},
		"setTimeout":                {running, "/sandboxes/01-east/timeout", `{"timeout":60}`, "PATCH 60s"},
		"the longest":               {running, "/sandboxes/01-east/timeout", `{"timeout":31536000}`, "PATCH 31536000s"},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			isPaused := false
			g, server := front(t, func(w http.ResponseWriter, r *http.Request) {
				_, action, _ := strings.Cut(r.URL.Path, "/01-east")
				switch r.Method {
				case http.MethodGet:
					fields := cmp.Or(tc.sandbox, `"env":"plain"`)
					if isPaused {
						fields += `,"pause":{"state":"PAUSED"}`
					}
					_, _ = io.WriteString(w, `{"id":"01-east","phase":"RUNNING","claimedAt":"2026-01-01T00:00:00Z",`+fields+`}`)
					return
				case http.MethodPatch:
					var change struct{ MaxLifetime string }
					must.Succeed(t, json.NewDecoder(r.Body).Decode(&change))
					calls = append(calls, "PATCH "+change.MaxLifetime)
				default:
					calls = append(calls, "POST "+strings.TrimPrefix(action, "/ports/49983/"))
				}
				if strings.Contains(tc.sandbox, "unclear") && action == ":pause" {
					isPaused = true
				}
				if action == ":pause" && (isPaused || strings.Contains(tc.sandbox, "fails")) {
					problem.New(problem.Unavailable, "no").Write(w)
					return
				}
				_, _ = io.WriteString(w, `{}`)
			})
			g.opts.Now = func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
			send(t, http.MethodPost, server.URL+tc.call, tc.body)
			if got := strings.Join(calls, ", "); got != tc.want {
				t.Errorf("the calls are %q, want %q", got, tc.want)
			}
		})
	}
}

// Clients escape a filter's names and values, then the filter, and then the query.
func TestFiltersOfMetadata(t *testing.T) {
	for query, want := range map[string]string{
		"user%3Da%252540b.com": "user=a@b.com", "a%252520b%3D%2525C3%2525A9": "a b=é", "task%3Dsuite": "task=suite",
		"share%3D100%2525": "share=100%",
	} {
		got := make(chan []string, 1)
		_, server := front(t, func(w http.ResponseWriter, r *http.Request) {
			got <- r.URL.Query()["metadataSelector"]
			_, _ = io.WriteString(w, `{}`)
		})
		send(t, http.MethodGet, server.URL+"/v2/sandboxes?metadata="+query, "")
		if selector := <-got; !slices.Equal(selector, []string{want}) {
			t.Errorf("%s selects %q, want %q", query, selector, want)
		}
	}
}

// A sandbox gets a query as its caller wrote it, also one that Go does not parse.
func TestASandboxGetsTheQueryAsItWasWritten(t *testing.T) {
	got := make(chan string, 1)
	g, server := front(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.URL.RawQuery })
	for _, query := range []string{"b=2&a=1", "a=1;b=2", "share=100%"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/?"+query, nil)
		must.Succeed(t, err)
		for name, value := range map[string]string{
			"X-Access-Token": g.sealer.seal("01-east", "atoll_key"), "E2b-Sandbox-Id": "01-east", "E2b-Sandbox-Port": "8000",
		} {
			request.Header.Set(name, value)
		}
		response, err := server.Client().Do(request)
		must.Succeed(t, err)
		_ = response.Body.Close()
		if asked := <-got; asked != query {
			t.Errorf("%q: the sandbox is asked for %q", query, asked)
		}
	}
}

// An application's problem passes as it is; the hub's has E2B's form.
func TestAnApplicationsProblemPasses(t *testing.T) {
	for ours, want := range map[bool]int{true: http.StatusBadGateway, false: http.StatusNotFound} {
		g, server := front(t, func(w http.ResponseWriter, _ *http.Request) {
			if ours {
				problem.New(problem.NotFound, "gone").Write(w)
				return
			}
			w.Header().Set("Content-Type", problem.ContentType)
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"type":"theirs"}`)
		})
		token := g.sealer.seal("01-east", "atoll_key")
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/", nil)
		must.Succeed(t, err)
		for name, value := range map[string]string{"X-Access-Token": token, "E2b-Sandbox-Id": "01-east", "E2b-Sandbox-Port": "8000"} {
			request.Header.Set(name, value)
		}
		response, err := server.Client().Do(request)
		must.Succeed(t, err)
		text := string(must.Read(t, response.Body))
		_ = response.Body.Close()
		if response.StatusCode != want || strings.Contains(text, "theirs") == ours || response.Header.Get(problem.Header) != "" {
			t.Errorf("ours %t: %d %v %s", ours, response.StatusCode, response.Header, text)
		}
	}
}

func TestInsideEndsWithItsListener(t *testing.T) {
	inside := NewInside()
	_ = inside.Close()
	if _, err := inside.Dial(context.Background(), "10.0.0.1"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a connection to a closed listener: %v", err)
	}
}

func TestNetworks(t *testing.T) {
	for body, want := range map[string]struct{ known, denies bool }{
		`{}`:                                      {true, false},
		`{"allow_internet_access": true}`:         {true, false},
		`{"allow_internet_access": false}`:        {true, true},
		`{"network": {}}`:                         {true, false},
		`{"network": {"denyOut": ["0.0.0.0/0"]}}`: {true, true},
		`{"network": {"denyOut": ["0.0.0.0/0"], "allowPublicTraffic": false}}`: {true, true},
		`{"network": {"denyOut": ["10.0.0.0/8"]}}`:                             {false, false},
		`{"network": {"denyOut": "0.0.0.0/0"}}`:                                {false, false},
		`{"network": {"denyOut": ["0.0.0.0/0"], "allowOut": ["10.0.0.1"]}}`:    {false, false},
		`{"network": {"allowPublicTraffic": true}}`:                            {false, false},
	} {
		n := &newSandbox{TemplateID: "python"}
		must.Succeed(t, json.Unmarshal([]byte(body), n))
		if err := n.check(); (err == nil) != want.known {
			t.Errorf("%s: %v", body, err)
		}
		if got := n.request(Template{Env: "python"})["denyEgress"] == true; want.known && got != want.denies {
			t.Errorf("%s: egress denied %t", body, got)
		}
	}
}
