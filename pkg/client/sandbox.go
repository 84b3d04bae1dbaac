// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// Sandbox is a claimed sandbox. Its methods are safe for concurrent use.
type Sandbox struct {
	client *Client
	info   *sandboxv1.Sandbox
}

// ID returns the sandbox's id.
func (s *Sandbox) ID() string { return s.info.GetId() }

// Info returns the sandbox's state when it was created or fetched.
func (s *Sandbox) Info() *sandboxv1.Sandbox { return s.info }

func (s *Sandbox) path(below string) string { return "/v1/sandboxes/" + url.PathEscape(s.ID()) + below }

// Close releases the sandbox. It is not an error if the sandbox has already ended.
func (s *Sandbox) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	return s.Release(ctx)
}

// Release is Close with a context.
func (s *Sandbox) Release(ctx context.Context) error {
	err := s.client.call(ctx, http.MethodDelete, s.path(""), nil, nil, nil)
	if err != nil && problem.FromError(err).Reason == problem.NotFound {
		return nil
	}
	return err
}

// PortURL returns the URL of a port of the sandbox. Requests to it need the API key; Port adds it.
func (s *Sandbox) PortURL(port int) string {
	return s.client.base.String() + s.path("/ports/"+strconv.Itoa(port)+"/")
}

// Port returns a transport for an http.Client that sends requests to a port of the sandbox. It uses only the path and the query of a
// request's URL.
func (s *Sandbox) Port(port int) http.RoundTripper { return &toPort{s, port} }

type toPort struct {
	sandbox *Sandbox
	port    int
}

// RoundTrip implements http.RoundTripper.
func (t *toPort) RoundTrip(request *http.Request) (*http.Response, error) {
	c := t.sandbox.client
	to := *c.base
	prefix := t.sandbox.path("/ports/" + strconv.Itoa(t.port))
	to.Path, to.RawPath, to.RawQuery = prefix+request.URL.Path, prefix+request.URL.EscapedPath(), request.URL.RawQuery
	if request.URL.Path == "" {
		to.Path, to.RawPath = prefix+"/", ""
	}
	out := request.Clone(request.Context())
	out.URL, out.Host = &to, ""
	if err := c.authorize(out); err != nil {
		return nil, err
	}
	transport := c.opts.HTTP.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	return transport.RoundTrip(out)
}
