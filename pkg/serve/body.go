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

// opens are the paths that need no credentials.
func opens(r *http.Request) bool {
	return r.Method == http.MethodGet && (r.URL.Path == healthPath || r.URL.Path == openAPIPath)
}

type callerKey struct{}

// admitted authenticates the caller before any of a body is read.
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
		if err := s.guard.paces.turn(r.Context(), caller); err != nil {
			refuse(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

// refuse responds without reading the body. The connection ends with the response; because net/http would read on, and a caller
// that sends endless requests and reads no response could fill the kernel's buffers with them.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Connection", "close")
	problem.FromError(err).Write(w)
}

// conversation serves requests that may last for days, and send any amount. Once one has ended, the rest of the request arrives
// in time or not at all.
func (s *Server) conversation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Time{})
		_ = control.SetWriteDeadline(time.Time{})
		next.ServeHTTP(w, r)
		now := time.Now()
		_ = control.SetReadDeadline(now.Add(s.opts.Limits.BodyTimeout))
		_ = control.SetWriteDeadline(now.Add(2 * s.opts.Limits.BodyTimeout)) // net/http reads on before it writes
	})
}

// bounded reads a body in full, in time, and checks it, before next gets it. It also bounds the time of a response from when it
// begins.
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
		return nil, problem.InvalidField("Content-Encoding", clip(how), "identity: requests are not compressed")
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

// checkType requires JSON; because what a page may send to another origin without a preflight has another type, or, from
// browsers, none.
func checkType(header http.Header) error {
	kind := header.Get("Content-Type")
	if kind == "" && header.Get("Origin") == "" && header.Get("Sec-Fetch-Site") == "" {
		return nil
	}
	if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
		return problem.InvalidField("Content-Type", clip(kind), "application/json")
	}
	return nil
}

// remote is the address of a caller, from net/http.
func remote(text string) net.Addr {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return nil
	}
	return net.TCPAddrFromAddrPort(at)
}

// departing is a response that the caller must take in time once it has begun. Until then a call may take as long as it needs.
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
