// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"navix.sh/atoll/pkg/pace"
	"navix.sh/atoll/pkg/problem"
)

// opens reports whether a request needs no credentials.
func opens(r *http.Request) bool {
	return r.Method == http.MethodGet && (r.URL.Path == healthPath || r.URL.Path == openAPIPath)
}

type callerKey struct{}

// admitted authenticates the caller before any of the body is read.
func (s *Server) admitted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.opts.Admit == nil {
			next.ServeHTTP(w, r)
			return
		}
		if opens(r) {
			w.Header().Set("Connection", "close") // as for refused requests
			next.ServeHTTP(w, r)
			return
		}
		caller, err := s.opts.Admit(r.Context(), "", r.Header.Values("Authorization"))
		if err != nil {
			refuse(w, err)
			return
		}
		meterIn(r.Context()).admit(caller)
		if err := s.guard.paces.throttle(r.Context(), caller); err != nil {
			refuse(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

// refuse responds without reading the body, and closes the connection after the response. Otherwise net/http would continue to read, and a
// caller that sends requests without end and reads no response could fill the kernel's buffers.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Connection", "close")
	problem.FromError(err).Write(w)
}

// conversation serves requests that may last for days and send any amount of data. After the handler returns, the rest of the request must
// arrive within the body timeout.
func (s *Server) conversation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Time{})
		_ = control.SetWriteDeadline(time.Time{})
		next.ServeHTTP(w, r)
		now := time.Now()
		_ = control.SetReadDeadline(now.Add(s.opts.Limits.BodyTimeout))
		_ = control.SetWriteDeadline(now.Add(2 * s.opts.Limits.BodyTimeout)) // net/http reads the rest of the body before it writes
	})
}

// bounded reads a body in full, within the body timeout, and checks it before it calls next. It also sets a deadline for the response, from
// the first byte that next writes.
func (s *Server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		body, err := s.receive(control, r)
		if err != nil {
			_ = control.SetWriteDeadline(time.Now().Add(s.opts.Limits.BodyTimeout))
			refuse(w, err)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
		ctx, done := s.guard.withHeld(r.Context(), callerOf(r))
		defer done()
		next.ServeHTTP(&departing{ResponseWriter: w, control: control, within: s.opts.Limits.BodyTimeout}, r.WithContext(ctx))
	})
}

// callerOf names the caller of a REST request: its key, or its address.
func callerOf(r *http.Request) string {
	if caller, ok := r.Context().Value(callerKey{}).(string); ok {
		return caller
	}
	return pace.Origin(remote(r.RemoteAddr)).String()
}

func (s *Server) receive(control *http.ResponseController, r *http.Request) ([]byte, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	if how := r.Header.Get("Content-Encoding"); how != "" && !strings.EqualFold(how, "identity") {
		return nil, problem.InvalidField("Content-Encoding", clipped(how), "identity: requests are not compressed")
	}
	if err := checkType(r.Header); err != nil {
		return nil, err
	}
	most := s.opts.Limits.BodyBytes
	if r.ContentLength > int64(most) {
		return nil, tooLarge(most)
	}
	leave, err := s.guard.known.enter(r.Context(), callerOf(r), s.opts.Limits.BodyTimeout)
	if err != nil {
		return nil, err
	}
	defer leave()
	_ = control.SetReadDeadline(time.Now().Add(s.opts.Limits.BodyTimeout))
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(most)+1))
	_ = control.SetReadDeadline(time.Time{})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problem.New(problem.Deadline, "the request's body did not arrive within %s", s.opts.Limits.BodyTimeout)
	case err != nil:
		return nil, problem.New(problem.Invalid, "the request's body broke off: %w", err)
	case len(body) > most:
		return nil, tooLarge(most)
	}
	return body, checkJSON(body)
}

// checkType requires JSON, because a page can send other content types to another origin without a preflight. A body without a type passes
// only if it is not from a browser.
func checkType(header http.Header) error {
	kind := header.Get("Content-Type")
	if kind == "" && header.Get("Origin") == "" && header.Get("Sec-Fetch-Site") == "" {
		return nil
	}
	if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
		return problem.InvalidField("Content-Type", clipped(kind), "application/json")
	}
	return nil
}

// remote parses the address of a caller, as net/http formats it.
func remote(text string) net.Addr {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return nil
	}
	return net.TCPAddrFromAddrPort(at)
}

// departing is a response that the caller must take within a time limit once it has begun. Before that, a call may take any time.
type departing struct {
	http.ResponseWriter
	control *http.ResponseController
	within  time.Duration
	began   bool
}

func (d *departing) begin() {
	if !d.began {
		d.began = true
		_ = d.control.SetWriteDeadline(time.Now().Add(d.within))
	}
}

func (d *departing) WriteHeader(code int) {
	d.begin()
	d.ResponseWriter.WriteHeader(code)
}

func (d *departing) Write(p []byte) (int, error) {
	d.begin()
	return d.ResponseWriter.Write(p)
}
