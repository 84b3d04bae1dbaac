// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/gorilla/websocket"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

const (
	handshakeTimeout = 30 * time.Second
	pingEvery        = 15 * time.Second
)

// place is the server's REST API, through which sandboxes are reached.
type place struct {
	base   url.URL
	token  func(context.Context) (string, error) // for the next request; a context's is renewed while a command runs
	limit  time.Duration                         // until the response begins
	http   *http.Client
	socket websocket.Dialer

	transport *http.Transport // of http
}

func (a *app) place(ctx context.Context) (*place, error) {
	if err := a.resolve(); err != nil {
		return nil, err
	}
	config, err := a.tlsConfig()
	if err != nil {
		return nil, err
	}
	if _, err := a.bearer(ctx); err != nil {
		return nil, err
	}
	handshake := min(handshakeTimeout, a.limit())
	dialer := net.Dialer{Timeout: handshake, KeepAlive: pingEvery}
	p := &place{
		base:  url.URL{Scheme: "http", Host: a.server},
		token: a.bearer,
		limit: a.limit(),
		socket: websocket.Dialer{
			TLSClientConfig: config, NetDialContext: dialer.DialContext, HandshakeTimeout: handshake,
			ReadBufferSize: reach.MaxMessage, WriteBufferSize: reach.MaxMessage,
		},
		transport: &http.Transport{
			TLSClientConfig: config, DialContext: dialer.DialContext, DisableKeepAlives: true, TLSHandshakeTimeout: handshake,
			// The limit is from the end of the request to the response's headers, so it does not cut off an upload or a followed log.
			ResponseHeaderTimeout: a.limit(),
		},
	}
	p.http = &http.Client{Transport: p.transport}
	if config != nil {
		p.base.Scheme = "https"
	}
	return p, nil
}

// header returns the header of a request.
func (p *place) header(ctx context.Context) (http.Header, error) {
	header := http.Header{}
	token, err := p.token(ctx)
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return header, err
}

func (p *place) url(id, what string, query url.Values) *url.URL {
	u := p.base
	u.Path = "/v1/sandboxes/" + id + "/" + what
	u.RawQuery = query.Encode()
	return &u
}

// get returns the response of a sandbox's path; the caller closes its body.
func (p *place) get(ctx context.Context, id, what string, query url.Values) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url(id, what, query).String(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", p.base.Host, err)
	}
	if request.Header, err = p.header(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	answer, err := p.http.Do(request)
	switch {
	case err != nil && ctx.Err() == nil && time.Since(began) >= p.limit:
		return nil, problem.New(problem.Deadline, "%s has not responded within %s (--timeout)", p.base.Host, p.limit)
	case err != nil:
		return nil, unreachable(p, err)
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		return nil, problem.Read(answer.StatusCode, answer.Body)
	}
	return answer, nil
}

// connect opens a WebSocket.
func (p *place) connect(ctx context.Context, id, what string, query url.Values, protocol string) (*websocket.Conn, error) {
	u := p.url(id, what, query)
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	dialer := p.socket
	dialer.Subprotocols = []string{protocol}
	header, err := p.header(ctx)
	if err != nil {
		return nil, err
	}
	conn, answer, err := dialer.DialContext(ctx, u.String(), header)
	switch {
	case errors.Is(err, websocket.ErrBadHandshake):
		defer answer.Body.Close()
		return nil, problem.Read(answer.StatusCode, answer.Body)
	case err != nil:
		return nil, unreachable(p, err)
	}
	_ = answer.Body.Close()
	return conn, nil
}

func unreachable(p *place, err error) error {
	return problem.New(problem.Unavailable, "%s was not reached: %w", p.base.Host, err)
}
