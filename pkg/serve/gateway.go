// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"navix.sh/atoll/pkg/problem"
)

// The paths that need no credentials.
const (
	healthPath  = "/healthz"
	openAPIPath = "/openapi.json"
)

// handler serves every HTTP request: extra handlers first, then the translated calls.
func (s *Server) handler(conn *localConn) (http.Handler, error) {
	gateway := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &strictJSON{runtime.JSONPb{
			MarshalOptions: protojson.MarshalOptions{EmitDefaultValues: true},
		}}),
		runtime.SetQueryParameterParser(laterQuery{}),
		runtime.WithMiddlewares(probed),
		runtime.WithForwardResponseRewriter(sparseIfMasked),
		runtime.WithIncomingHeaderMatcher(incomingHeader),
		runtime.WithErrorHandler(writeError),
		runtime.WithRoutingErrorHandler(writeRoutingError),
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptSlash),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
	)
	for _, service := range s.opts.Services {
		if service.Translate == nil {
			continue
		}
		if err := service.Translate(context.Background(), gateway, conn); err != nil {
			return nil, err
		}
	}
	extra := http.NewServeMux()
	extra.HandleFunc("GET "+healthPath, s.healthz)
	if len(s.opts.OpenAPI) > 0 {
		extra.HandleFunc("GET "+openAPIPath, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(s.opts.OpenAPI)
		})
	}
	events := s.events(conn)
	calls := s.bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Called instead of mounted; because a ServeMux would redirect paths whose segments have escaped slashes.
		if _, pattern := extra.Handler(r); pattern != "" {
			extra.ServeHTTP(w, r)
			return
		}
		gateway.ServeHTTP(w, withIncoming(carrySlashes(r)))
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _, sandbox := SandboxHost(r.Host, s.opts.Web.Domain(s.access()))
		if !sandbox {
			if err := s.opts.Web.named(s.access(), r); err != nil {
				refuse(w, err)
				return
			}
		}
		if s.opts.Further != nil {
			if h := s.opts.Further(r); h != nil {
				s.admitted(s.conversation(h)).ServeHTTP(w, r)
				return
			}
		}
		err := SameOrigin(r)
		if sandbox {
			err = problem.New(problem.NotFound, "sandboxes are not served at hosts of their own here")
		}
		if err != nil {
			refuse(w, err)
			return
		}
		if watches(r) {
			s.admitted(events).ServeHTTP(w, r)
			return
		}
		s.admitted(calls).ServeHTTP(w, r)
	}), nil
}

// claimsPath is the prefix before a claim key, which may contain any printable character.
const claimsPath = "/v1/claims/"

// carrySlashes moves a claim key with slashes from the path into a header; because the gateway either splits at an escaped slash
// or leaves it escaped.
func carrySlashes(r *http.Request) *http.Request {
	r.Header.Del(pathClaimKey)
	segment, ok := strings.CutPrefix(r.URL.EscapedPath(), claimsPath)
	if !ok || !strings.Contains(strings.ToLower(segment), "%2f") {
		return r
	}
	key, err := url.PathUnescape(segment)
	if err != nil {
		return r
	}
	r = r.Clone(r.Context())
	r.Header.Set(pathClaimKey, key)
	r.URL.Path, r.URL.RawPath = claimsPath+"-", ""
	return r
}

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	answer, err := s.health.Check(r.Context(), &healthv1.HealthCheckRequest{})
	if err != nil || answer.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		problem.New(problem.Unavailable, "not serving").Write(w)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// sparse is a response without fields that are not set.
type sparse struct{ proto.Message }

// sparseIfMasked leaves out of a response what its caller's mask leaves out. Every other response has all fields, also those that are
// not set.
func sparseIfMasked(ctx context.Context, response proto.Message) (any, error) {
	in := incomingFrom(ctx)
	if in != nil && (in.query.Has("readMask") || in.query.Has("read_mask")) {
		return sparse{response}, nil
	}
	return response, nil
}

// incomingHeader passes on the headers that the interceptors read, under gRPC callers' names. The gateway itself passes on
// Authorization; DefaultHeaderMatcher would repeat that under another name.
func incomingHeader(name string) (string, bool) {
	switch lower := strings.ToLower(name); lower {
	case idempotencyKey, pathClaimKey, "traceparent", "tracestate":
		return lower, true
	case "authorization":
		return "", false
	}
	return runtime.DefaultHeaderMatcher(name)
}

func writeError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if _, probes := r.Context().Value(probeKey{}).(*bool); probes {
		return
	}
	problem.FromError(err).Write(w)
}

// writeRoutingError responds to a request that matches no rule of the API. REST has more codes for a method than gRPC.
func writeRoutingError(_ context.Context, mux *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	if _, probes := r.Context().Value(probeKey{}).(*bool); probes {
		return
	}
	switch code {
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", strings.Join(allowed(mux, r), ", "))
		problem.New(problem.Invalid, "%s is not a method of %s; there are: %s", r.Method, r.URL.Path, w.Header().Get("Allow")).
			WriteStatus(w, http.StatusMethodNotAllowed)
	case http.StatusBadRequest:
		problem.New(problem.Invalid, "%s cannot be read as a path", r.URL.Path).Write(w)
	default:
		problem.New(problem.NotFound, "there is no %s; see /openapi.json", r.URL.Path).Write(w)
	}
}

func (s *Server) access() Access { return s.opts.Admit != nil }

// probeKey is the context key of a request that only asks whether a rule of the API matches.
type probeKey struct{}

// probed keeps probes away from the handlers.
func probed(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		if matches, probes := r.Context().Value(probeKey{}).(*bool); probes {
			*matches = true
			return
		}
		next(w, r, params)
	}
}

// allowed returns the methods that the path of a request has.
func allowed(mux *runtime.ServeMux, r *http.Request) (methods []string) {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		var matches bool
		probe := r.Clone(context.WithValue(r.Context(), probeKey{}, &matches))
		probe.Method, probe.Body = method, http.NoBody
		mux.ServeHTTP(nil, probe)
		if matches {
			methods = append(methods, method)
		}
	}
	return methods
}
