// SPDX-License-Identifier: Apache-2.0

package localapi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/problem"
)

// reviewEvery bounds how long a watch or conversation lasts after its caller has lost the permission for it.
const reviewEvery = 15 * time.Second

// Gate authenticates callers and authorizes their calls, with the hub's table of permissions.
type Gate struct {
	Who access.Authenticator
	May access.Authorizer

	api   *API
	clock clock.WithTicker
}

// Admit implements serve.Admit.
func (g *Gate) Admit(ctx context.Context, _ string, authorization []string) (caller string, err error) {
	who, err := g.identify(ctx, authorization)
	if err != nil {
		return "", err
	}
	return who.Name, nil
}

func (g *Gate) identify(ctx context.Context, authorization []string) (*access.Identity, error) {
	scheme, token, ok := strings.Cut(strings.Join(authorization, ","), " ")
	if len(authorization) != 1 || !ok || !strings.EqualFold(scheme, "Bearer") {
		return nil, problem.New(problem.Unauthenticated, "a header Authorization: Bearer … with a token of this cluster is needed")
	}
	who, err := g.Who.Authenticate(ctx, strings.TrimSpace(token))
	if errors.Is(err, access.ErrNotMine) {
		return nil, problem.New(problem.Unauthenticated, "the bearer token is not known")
	}
	return who, err
}

// holds reports whether a caller has a permission in a namespace, or in all if it is empty.
func (g *Gate) holds(ctx context.Context, who *access.Identity, m access.Method, namespace string) (bool, error) {
	grant, err := g.May.Authorize(ctx, who, m.Permission)
	if err != nil {
		return false, err
	}
	from, err := grant.Holds(access.Query{Permission: m.Permission, Namespace: namespace}, m.Reach)
	return from != "", err
}

// viewMethod is the method that a caller must be allowed to call to see a sandbox.
var viewMethod = access.OfMethod(sandboxv1.Sandboxes_GetSandbox_FullMethodName)

// check rejects a call that its caller may not make.
func (g *Gate) check(ctx context.Context, who *access.Identity, m access.Method, req any) error {
	if id, ok := sandboxOf(m, req); ok {
		return g.checkSandbox(ctx, who, m, id)
	}
	namespace := ""
	if r, ok := req.(interface{ GetNamespace() string }); ok {
		if namespace = r.GetNamespace(); namespace == "" && !ofMany(m) {
			namespace = namespaceOf(r)
		}
	}
	return g.checkNamespace(ctx, who, m, namespace)
}

// sandboxOf returns the id of the sandbox that a call is about.
func sandboxOf(m access.Method, req any) (string, bool) {
	r, ok := req.(interface{ GetId() string })
	if !ok || m.Resource != access.Sandboxes && !strings.HasPrefix(m.Resource, access.Sandboxes+"/") {
		return "", false
	}
	return r.GetId(), true
}

// ofMany reports whether an empty namespace stands for all namespaces.
func ofMany(m access.Method) bool { return m.Verb == "list" || m.Verb == "watch" }

func (g *Gate) checkNamespace(ctx context.Context, who *access.Identity, m access.Method, namespace string) error {
	ok, err := g.holds(ctx, who, m, namespace)
	switch {
	case err != nil || ok:
		return err
	case namespace == "" && ofMany(m):
		return problem.New(problem.Forbidden, "%s lacks the permission to %s in all namespaces; name one", who.Caller(), m.Permission)
	case namespace == "":
		return access.Forbidden(who, m.Permission)
	}
	return problem.New(problem.Forbidden, "%s lacks the permission to %s in namespace %s", who.Caller(), m.Permission, namespace)
}

// checkSandbox rejects a call about a sandbox. If the caller may not see the sandbox, the error says that it does not exist.
func (g *Gate) checkSandbox(ctx context.Context, who *access.Identity, m access.Method, id string) error {
	missing := problem.New(problem.NotFound, "there is no sandbox %q", id)
	found, err := g.find(ctx, id)
	if err != nil {
		if p := problem.FromError(err); p.Reason == problem.NotFound {
			return missing
		}
		return err
	}
	if sees, err := g.holds(ctx, who, viewMethod, found.GetNamespace()); err != nil || !sees {
		if err == nil {
			err = missing
		}
		return err
	}
	return g.checkNamespace(ctx, who, m, found.GetNamespace())
}

// find returns a sandbox, from the leader if that is another replica.
func (g *Gate) find(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	if leader := g.api.opts.leader(); leader != nil {
		return sandboxv1.NewSandboxesClient(leader).GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: id})
	}
	return g.api.opts.Sandboxes.Get(ctx, id)
}

// Unary is the interceptor that rejects calls which their caller may not make.
func (g *Gate) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if strings.HasPrefix(info.FullMethod, "/"+healthv1.Health_ServiceDesc.ServiceName+"/") {
		return handler(ctx, req)
	}
	who, err := g.identify(ctx, metadata.ValueFromIncomingContext(ctx, "authorization"))
	if err != nil {
		return nil, err
	}
	audit.Identify(ctx, audit.As(who))
	if err := g.check(ctx, who, access.OfMethod(info.FullMethod), req); err != nil {
		return nil, err
	}
	return handler(withCaller(ctx, who), req)
}

func withCaller(ctx context.Context, who *access.Identity) context.Context {
	return context.WithValue(ctx, callerKey{}, who)
}

// identityOf returns the caller, or nil if callers need no credentials here.
func identityOf(ctx context.Context) *access.Identity {
	who, _ := ctx.Value(callerKey{}).(*access.Identity)
	return who
}

type callerKey struct{}

// callerOf returns the caller's name for logs.
func callerOf(ctx context.Context) string {
	if who := identityOf(ctx); who != nil {
		return who.Name
	}
	return "local"
}

// Stream is Unary for streams. It checks the request when it is received, and again periodically while the stream lasts.
func (g *Gate) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	return handler(srv, &gated{ServerStream: stream, ctx: ctx, check: func(req any) error {
		again := func() error {
			who, err := g.identify(ctx, metadata.ValueFromIncomingContext(ctx, "authorization"))
			if err != nil {
				return err
			}
			audit.Identify(ctx, audit.As(who))
			return g.check(ctx, who, access.OfMethod(info.FullMethod), req)
		}
		if err := again(); err != nil {
			return err
		}
		go g.review(ctx, end, again)
		return nil
	}})
}

// gated is a stream whose request is checked.
type gated struct {
	grpc.ServerStream
	ctx   context.Context
	check func(req any) error
}

// Context implements grpc.ServerStream.
func (s *gated) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *gated) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.check(m)
}

// HTTP rejects conversations with sandboxes which their caller may not have.
func (g *Gate) HTTP(next http.Handler) http.Handler {
	c, ok := next.(interface {
		Kind() string
		Sandbox() string
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancelCause(r.Context())
		defer end(nil)
		var who *access.Identity
		check := func() (err error) {
			if who, err = g.identify(ctx, r.Header.Values("Authorization")); err != nil {
				return err
			}
			if !ok {
				return access.Forbidden(who, access.OfMethod("").Permission)
			}
			m, known := access.OfConversation(c.Kind())
			if !known {
				return access.Forbidden(who, access.OfMethod("").Permission)
			}
			return g.checkSandbox(ctx, who, m, c.Sandbox())
		}
		if err := check(); err != nil {
			audit.NoteRefusal(ctx, audit.As(who), err)
			problem.FromError(err).Write(w)
			return
		}
		admitted := withCaller(ctx, who)
		go g.review(ctx, end, check)
		next.ServeHTTP(w, r.WithContext(admitted))
	})
}

// review ends a stream or conversation when its caller has lost the permission for it. While the API server is away, all continue.
func (g *Gate) review(ctx context.Context, end context.CancelCauseFunc, check func() error) {
	ticker := g.clock.NewTicker(reviewEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if err := check(); err != nil && problem.FromError(err).Reason != problem.Unavailable {
				end(err)
				return
			}
		}
	}
}
