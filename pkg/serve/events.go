// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/listing"
	"navix.sh/atoll/pkg/problem"
)

// listPath serves the list of sandboxes or, with watch=true, their changes.
const listPath = "/v1/sandboxes"

// watches reports whether a request asks for changes.
func watches(r *http.Request) bool {
	on, err := strconv.ParseBool(r.URL.Query().Get("watch"))
	return r.Method == http.MethodGet && r.URL.Path == listPath && err == nil && on
}

// events serves the changes of sandboxes as server-sent events, through the interceptors of streams.
func (s *Server) events(conn *localConn) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.SetWriteDeadline(time.Now().Add(s.opts.Limits.BodyTimeout))
		request, err := watchOf(r)
		if err == nil && r.ContentLength != 0 {
			err = problem.InvalidField("body", "", "nothing, with watch=true") // with a body, net/http does not detect a disconnect
		}
		if err != nil {
			refuse(w, err)
			return
		}
		caller := callerOf(r)
		if !s.guard.calls.Enter(caller) {
			refuse(w, s.guard.manyCalls())
			return
		}
		defer s.guard.calls.Leave(caller)
		md := metadata.MD{}
		for _, name := range []string{"Authorization", "Traceparent", "Tracestate"} {
			md.Append(name, r.Header.Values(name)...)
		}
		out := &eventStream{
			ctx: metadata.NewIncomingContext(r.Context(), md), request: request, w: w, control: control, within: s.opts.Limits.BodyTimeout,
		}
		out.end(conn.stream(sandboxv1.Sandboxes_WatchSandboxes_FullMethodName, out))
	})
}

// watchOf reads a request for changes.
func watchOf(r *http.Request) (*sandboxv1.WatchSandboxesRequest, error) {
	r = withIncoming(r)
	list := &sandboxv1.ListSandboxesRequest{}
	if err := incomingFrom(r.Context()).complete(list); err != nil {
		return nil, err
	}
	if last := r.Header.Get("Last-Event-ID"); list.GetResumeToken() == "" {
		list.ResumeToken = last // a browser that reconnects sends it
	}
	request, faults := listing.Watch(list)
	return request, faults.Err()
}

// eventStream is the server side of a stream that sends its messages as server-sent events. A handler may return while a send is in
// progress.
type eventStream struct {
	ctx     context.Context
	request proto.Message
	w       http.ResponseWriter
	control *http.ResponseController
	within  time.Duration

	mu    sync.Mutex
	began bool
	over  bool
}

func (e *eventStream) SetHeader(metadata.MD) error  { return nil }
func (e *eventStream) SendHeader(metadata.MD) error { return nil }
func (e *eventStream) SetTrailer(metadata.MD)       {}
func (e *eventStream) Context() context.Context     { return e.ctx }

// RecvMsg returns the one message of the caller.
func (e *eventStream) RecvMsg(m any) error {
	if e.request == nil {
		return io.EOF
	}
	err := assign(m, e.request)
	e.request = nil
	return err
}

// SendMsg sends an event.
func (e *eventStream) SendMsg(m any) error {
	event, ok := m.(*sandboxv1.SandboxEvent)
	if !ok {
		return fmt.Errorf("%T is no event", m)
	}
	data, err := protojson.Marshal(event)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return errStreamOver
	}
	return e.send(event.GetType().String(), event.GetResumeToken(), data)
}

var errStreamOver = errors.New("the stream is over")

// send writes an event. The caller must take it within e.within. The caller of send holds mu.
func (e *eventStream) send(kind, id string, data []byte) error {
	if err := e.control.SetWriteDeadline(time.Now().Add(e.within)); err != nil {
		return err
	}
	if !e.began {
		e.began = true
		header := e.w.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-store")
		header.Set("X-Accel-Buffering", "no") // proxies must not hold events back
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		e.w.WriteHeader(http.StatusOK)
	}
	var text bytes.Buffer
	if id != "" {
		fmt.Fprintf(&text, "id: %s\n", id)
	}
	fmt.Fprintf(&text, "event: %s\ndata: %s\n\n", kind, data)
	if _, err := e.w.Write(text.Bytes()); err != nil {
		return err
	}
	return e.control.Flush()
}

// end reports why the stream ends: with a status if nothing was sent yet, else with an ERROR event. It closes the connection of a caller
// that has not taken the last event.
func (e *eventStream) end(err error) {
	if !e.mu.TryLock() {
		_ = e.control.SetWriteDeadline(time.Now())
		e.mu.Lock()
	}
	defer e.mu.Unlock()
	e.over = true
	switch {
	case err == nil:
	case !e.began:
		refuse(e.w, err)
	default:
		if document, encodeErr := problem.FromError(err).Document(); encodeErr == nil {
			_ = e.send("ERROR", "", document)
		}
	}
}
