// SPDX-License-Identifier: Apache-2.0

package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/validate"
)

const (
	// insideURL is the API as Dial reaches it.
	insideURL   = "http://localhost"
	maxBody     = 256 << 10
	bodyTimeout = 30 * time.Second
)

// Dial connects to the API within the process, with the given caller address.
type Dial func(ctx context.Context, from string) (net.Conn, error)

type remoteKey struct{}

func remoteOf(ctx context.Context) *remote {
	s, _ := ctx.Value(remoteKey{}).(*remote)
	return s
}

// remote is a session over HTTP. It calls the API as its caller, with the credentials of the latest request.
type remote struct {
	*Session
	id, caller string
	patience   time.Duration
	transport  *transport

	now       sync.Mutex
	token     string
	address   string
	userAgent string
	requests  int
	idle      *time.Timer        // runs while there are no requests
	attached  *mcp.ServerSession // nil: not attached yet, or closed
	closing   bool
}

// enter records the start of a request. It returns false if there are too many.
func (s *remote) enter(r *http.Request) bool {
	s.now.Lock()
	defer s.now.Unlock()
	if s.requests >= maxRequests {
		return false
	}
	s.requests++
	if s.idle != nil {
		s.idle.Stop()
	}
	if _, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok {
		s.token = strings.TrimSpace(token)
	}
	s.address, s.userAgent = serve.OriginOf(r.Context()).Address, r.UserAgent()
	return true
}

// exit records the end of a request. After the last one, the patience timer starts.
func (s *remote) exit() {
	s.now.Lock()
	defer s.now.Unlock()
	if s.requests--; s.requests > 0 || s.closing {
		return
	}
	if s.idle == nil {
		s.idle = time.AfterFunc(s.patience, s.expire)
		return
	}
	s.idle.Reset(s.patience)
}

func (s *remote) expire() {
	s.now.Lock()
	used := s.requests > 0
	s.now.Unlock()
	if !used {
		s.close()
	}
}

// attach sets the protocol's session. If this session was closed in the meantime, it closes the protocol's session immediately.
func (s *remote) attach(to *mcp.ServerSession) {
	s.now.Lock()
	s.attached = to
	closing := s.closing
	s.now.Unlock()
	if closing {
		_ = to.Close()
	}
}

func (s *remote) detach() {
	s.now.Lock()
	defer s.now.Unlock()
	s.closing = true
	if s.idle != nil {
		s.idle.Stop()
	}
}

// close ends the session and its running calls.
func (s *remote) close() {
	s.end()
	s.now.Lock()
	s.closing = true
	to := s.attached
	s.now.Unlock()
	if to != nil {
		_ = to.Close()
	}
}

func (s *remote) currentToken() (string, error) {
	s.now.Lock()
	defer s.now.Unlock()
	return s.token, nil
}

// transport calls the API for a session, from its agent's address.
type transport struct {
	http.Transport
	of *remote
}

func newTransport(dial Dial, of *remote) *transport {
	return &transport{of: of, Transport: http.Transport{
		DisableCompression: true, MaxIdleConnsPerHost: 2, IdleConnTimeout: 10 * time.Second,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			of.now.Lock()
			from := of.address
			of.now.Unlock()
			return dial(ctx, from)
		},
	}}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.of.now.Lock()
	agent := t.of.userAgent
	t.of.now.Unlock()
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", cmp.Or(agent, "mcp"))
	return t.Transport.RoundTrip(r)
}

func (t *transport) close() { t.CloseIdleConnections() }

// takeBody reads the whole body of a request within a time limit.
func takeBody(w http.ResponseWriter, r *http.Request) error {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	_ = control.SetReadDeadline(time.Time{})
	switch {
	case err != nil:
		return problem.New(problem.Invalid, "the request's body broke off: %s", validate.Clip(err.Error()))
	case len(body) > maxBody:
		return problem.InvalidField("body", fmt.Sprintf("more than %d bytes", maxBody), fmt.Sprintf("at most %d bytes", maxBody))
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}
