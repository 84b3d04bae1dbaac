// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"navix.sh/atoll/e2e/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server notes what is carried out.
type server struct {
	mu   sync.Mutex
	done []string
	told chan string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	call := r.Method + " " + r.URL.Path + " " + string(body)
	s.mu.Lock()
	s.done = append(s.done, call)
	s.mu.Unlock()
	s.told <- call
	_, _ = io.WriteString(w, r.Proto)
}

// start runs a server, a proxy in front of it, and a client of that.
func start(t *testing.T) (*server, *Proxy, func(ctx context.Context, method, path string) (int, string, error)) {
	t.Helper()
	s := &server{told: make(chan string, 16)}
	behind := httptest.NewUnstartedServer(s)
	behind.EnableHTTP2 = true
	behind.StartTLS()
	t.Cleanup(behind.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: behind.Certificate().Raw})
	p, err := Listen(Options{Target: behind.Listener.Addr().String(), CA: ca, Certificate: behind.TLS.Certificates[0], Seed: 1})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, p.Close()) })
	client := behind.Client()
	t.Cleanup(client.CloseIdleConnections)
	return s, p, func(ctx context.Context, method, path string) (int, string, error) {
		r, err := http.NewRequestWithContext(ctx, method, "https://"+p.Address()+path, strings.NewReader("body"))
		if err != nil {
			return 0, "", err
		}
		response, err := client.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		return response.StatusCode, string(content), err
	}
}

func TestForwards(t *testing.T) {
	s, _, call := start(t)
	if code, body, err := call(t.Context(), http.MethodPatch, "/api/v1/pods/a"); code != http.StatusOK || body != "HTTP/2.0" || err != nil {
		t.Errorf("answered %d %q %v", code, body, err)
	}
	if got := <-s.told; got != "PATCH /api/v1/pods/a body" {
		t.Errorf("carried out %q", got)
	}
}

func TestRules(t *testing.T) {
	s, p, call := start(t)
	hits := 0
	p.Set(
		Rule{Methods: []string{http.MethodPatch}, Path: "/pods/", Refuse: true, OnHit: func(*http.Request) { hits++ }},
		Rule{Path: "/envs/", LoseAnswer: true},
	)
	if code, body, err := call(t.Context(), http.MethodPatch, "/pods/a"); code != http.StatusTooManyRequests ||
		!strings.Contains(body, "TooManyRequests") || err != nil {
		t.Errorf("a refusal is %d %q %v", code, body, err)
	}
	if code, _, err := call(t.Context(), http.MethodGet, "/pods/a"); code != http.StatusOK || err != nil {
		t.Errorf("a request that no rule is about is answered %d %v", code, err)
	}
	if code, _, err := call(t.Context(), http.MethodPut, "/envs/a"); err == nil {
		t.Errorf("a lost answer is %d", code)
	}
	p.Set()
	if code, _, err := call(t.Context(), http.MethodPatch, "/pods/b"); code != http.StatusOK || err != nil {
		t.Errorf("without rules the answer is %d %v", code, err)
	}
	want := "GET /pods/a body,PUT /envs/a body,PATCH /pods/b body"
	if got := strings.Join(s.done, ","); got != want || hits != 1 {
		t.Errorf("carried out %s with %d hits, want %s", got, hits, want)
	}
}

func TestALateRequestOutlivesItsCaller(t *testing.T) {
	s, p, call := start(t)
	for _, late := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		p.Set(Rule{Delay: 100 * time.Millisecond, Late: late, OnHit: func(r *http.Request) {
			cancel()
			if !late {
				<-r.Context().Done() // on a busy machine the proxy may hear of it later than the delay
			}
		}})
		if _, _, err := call(ctx, http.MethodPatch, "/pods/late"); err == nil {
			t.Fatal("a caller that has gone was answered")
		}
		if late {
			if got := <-s.told; got != "PATCH /pods/late body" {
				t.Errorf("carried out %q", got)
			}
		}
	}
	p.Set()
	_, _, err := call(t.Context(), http.MethodGet, "/after")
	must.Succeed(t, err)
	if got := <-s.told; got != "GET /after body" {
		t.Errorf("the request whose caller had gone was carried out: %q", got)
	}
}

func TestChance(t *testing.T) {
	_, p, call := start(t)
	p.Set(Rule{Chance: 0.5, Refuse: true})
	refused := 0
	for range 16 {
		code, _, err := call(t.Context(), http.MethodGet, "/")
		must.Succeed(t, err)
		if code == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused < 2 || refused > 14 {
		t.Errorf("of 16 requests %d were refused, at a chance of one half", refused)
	}
}
