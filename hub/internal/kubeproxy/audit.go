// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// changes reports whether a request may change something. exec and port-forward are upgrades of a GET, and the effect of a request through
// the proxy of a Service, a Pod or a node is not known. The path is decoded as the API server decodes it.
func changes(r *http.Request, rest string) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		path, err := url.PathUnescape(rest)
		return err != nil || r.Header.Get("Upgrade") != "" || strings.Contains(path+"/", "/proxy/")
	default:
		return true
	}
}

// line is the audit line of one request; nil: it has none.
type line struct {
	calls   *audit.Calls
	event   audit.Event
	began   time.Time
	open    bool // the request is an upgrade, and its begin was written
	in, out atomic.Int64
}

// call names a request in the table of permissions.
var call = audit.Call{Verb: access.Proxy.Verb, Resource: access.Proxy.Resource, Changes: true}

// begin returns the audit line of a request, or an error if the request must not be made.
func begin(ctx context.Context, calls *audit.Calls, r *http.Request, t target) (*line, error) {
	if calls == nil || calls.Log == nil || !changes(r, t.rest) {
		return nil, nil //nolint:nilnil // it has none
	}
	l := &line{calls: calls, event: calls.Begin(ctx, call), began: calls.Log.Now()}
	l.event.Cluster, l.event.Conversation = t.cluster, &audit.Conversation{Kind: kind, Method: r.Method, Path: t.rest}
	return l, calls.Log.Before(ctx, l.event)
}

// upgraded records that a request has become a conversation.
func (l *line) upgraded(ctx context.Context) {
	if l == nil {
		return
	}
	l.open = true
	e := l.event
	e.Stage, e.Result = audit.Begin, audit.ResultOf(nil, e.Result)
	e.Millis = l.calls.Log.Now().Sub(l.began).Milliseconds()
	l.calls.Settle(ctx, e)
}

// end writes the outcome.
func (l *line) end(ctx context.Context, code int) {
	if l == nil {
		return
	}
	e := l.event
	e.Stage, e.Result = audit.Done, audit.ResultOf(responseError(ctx, code), e.Result)
	e.Time, e.Millis = l.calls.Log.Now(), l.calls.Log.Now().Sub(l.began).Milliseconds()
	about := *e.Conversation
	about.BytesIn, about.BytesOut = l.in.Load(), l.out.Load()
	e.Conversation = &about
	if l.open {
		e.Stage = audit.End
		l.calls.Log.Record(e)
		return
	}
	l.calls.Settle(ctx, e)
}

// responseError returns the error for a response's status. Without a response the request may have been carried out.
func responseError(ctx context.Context, code int) error {
	switch {
	case code == 0 && ctx.Err() != nil:
		return context.Canceled
	case code == 0:
		return problem.New(problem.OutcomeUnknown, "no response")
	case code < http.StatusBadRequest:
		return nil
	default:
		return problem.Read(code, strings.NewReader(""))
	}
}

// counted returns a tunnel whose bytes the line counts. The line may be nil.
func (l *line) counted(t reach.Tunnel) reach.Tunnel {
	if l == nil {
		return t
	}
	return &counted{t, l}
}

type counted struct {
	reach.Tunnel
	line *line
}

func (c *counted) Recv() ([]byte, error) {
	message, err := c.Tunnel.Recv()
	c.line.out.Add(int64(len(message)))
	return message, err
}

func (c *counted) Send(message []byte) error {
	err := c.Tunnel.Send(message)
	if err == nil {
		c.line.in.Add(int64(len(message)))
	}
	return err
}

// refused wraps a handler behind authentication: a refusal that audit.NoteRefusal records gets an audit line, and is written in the form
// that Kubernetes clients read.
func (h *Handler) refused(t target, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := audit.Watch(r.Context())
		translated := &translator{ResponseWriter: w}
		next.ServeHTTP(translated, r.WithContext(ctx))
		translated.finish(t)
		h.opts.Audit.RecordRefusal(ctx, call, func(e *audit.Event) {
			e.Cluster, e.Conversation = t.cluster, &audit.Conversation{Kind: kind, Method: r.Method, Path: t.rest}
		})
	})
}
