// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
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
			MarshalOptions: responseJSON,
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
		// Call it here instead of mounting it: a ServeMux would redirect paths whose segments have escaped slashes.
		if _, pattern := extra.Handler(r); pattern != "" {
			extra.ServeHTTP(w, r)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), responseHeader{}, w.Header()))
		gateway.ServeHTTP(w, withIncoming(carrySlashes(r)))
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = withOrigin(r)
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

// responseHeader is the context key of the header of a REST call's response.
type responseHeader struct{}

// SetHeader adds a header to the response of a unary call: an HTTP header over REST, metadata over gRPC. Handlers call it before they
// return, from the goroutine that serves the call.
func SetHeader(ctx context.Context, name, value string) {
	if header, ok := ctx.Value(responseHeader{}).(http.Header); ok {
		header.Set(name, value)
		return
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs(strings.ToLower(name), value)) // fails only after the response has begun
}

// claimsPath is the prefix before a claim key, which may contain any printable character.
const claimsPath = "/v1/claims/"

// carrySlashes moves a claim key with slashes from the path into a header, because the gateway either splits the path at an escaped slash
// or does not unescape it.
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

// responseJSON encodes responses.
var responseJSON = protojson.MarshalOptions{EmitDefaultValues: true}

// sparse is a list of sandboxes that is encoded without unset fields.
type sparse struct {
	*sandboxv1.ListSandboxesResponse
}

func (s sparse) marshal() ([]byte, error) {
	rest := &sandboxv1.ListSandboxesResponse{}
	s.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		rest.ProtoReflect().Set(field, value)
		return true
	})
	rest.Sandboxes = nil
	text, err := responseJSON.Marshal(rest)
	if err != nil {
		return nil, err
	}
	var out map[string]json.RawMessage
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, err
	}
	sandboxes := make([]json.RawMessage, len(s.GetSandboxes()))
	for i, sandbox := range s.GetSandboxes() {
		if sandboxes[i], err = protojson.Marshal(sandbox); err != nil {
			return nil, err
		}
	}
	if out["sandboxes"], err = json.Marshal(sandboxes); err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// sparseIfMasked omits unset fields from a list if the caller sent a field mask. Every other response has all fields, including unset ones.
func sparseIfMasked(ctx context.Context, response proto.Message) (any, error) {
	in := incomingFrom(ctx)
	list, ok := response.(*sandboxv1.ListSandboxesResponse)
	if ok && in != nil && (in.query.Has("readMask") || in.query.Has("read_mask")) {
		return sparse{list}, nil
	}
	return response, nil
}

// incomingHeader passes on the headers that the interceptors read, under the names that gRPC callers use. The gateway itself passes on
// Authorization; DefaultHeaderMatcher would add it again under another name.
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

// writeRoutingError responds to a request that matches no route of the API. REST has more status codes for this than gRPC.
func writeRoutingError(_ context.Context, mux *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	if _, probes := r.Context().Value(probeKey{}).(*bool); probes {
		return
	}
	switch code {
	case http.StatusMethodNotAllowed:
		if verb := customVerb(r); verb != "" {
			problem.New(problem.NotFound, "%s has no %s; see /openapi.json", strings.TrimSuffix(r.URL.Path, verb), verb).Write(w)
			return
		}
		w.Header().Set("Allow", strings.Join(allowed(mux, r), ", "))
		problem.New(problem.Invalid, "%s is not a method of %s; there are: %s", r.Method, r.URL.Path, w.Header().Get("Allow")).
			WriteStatus(w, http.StatusMethodNotAllowed)
	case http.StatusBadRequest:
		problem.New(problem.Invalid, "%s cannot be read as a path", r.URL.Path).Write(w)
	default:
		problem.New(problem.NotFound, "there is no %s; see /openapi.json", r.URL.Path).Write(w)
	}
}

// customVerb returns the custom verb of a POST that matches no route, such as ":explain".
func customVerb(r *http.Request) string {
	last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if i := strings.LastIndexByte(last, ':'); i > 0 && r.Method == http.MethodPost && !strings.HasPrefix(r.URL.Path, "/v1/claims/") {
		return last[i:]
	}
	return ""
}

func (s *Server) access() Access { return s.opts.Admit != nil }

// probeKey is the context key of a request that only tests whether a route matches.
type probeKey struct{}

// probed keeps such test requests away from the handlers.
func probed(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		if matches, probes := r.Context().Value(probeKey{}).(*bool); probes {
			*matches = true
			return
		}
		next(w, r, params)
	}
}

// allowed returns the methods for which the path of a request has a route.
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
