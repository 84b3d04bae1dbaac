// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/tally"
)

// maxConversations bounds the conversations with sandboxes that the caller with one key has at a time. Each costs the hub up to 0.5 MiB of
// buffers and windows (I14).
const maxConversations = 512

// rereadEvery is the interval at which the keys file is read again. The file is polled, not watched; because a mounted Secret changes by a
// swap of links.
const rereadEvery = 5 * time.Second

// Authenticator authenticates callers, and authorizes their calls.
type Authenticator struct {
	who   access.Authenticator
	may   access.Authorizer
	file  *KeyFile // nil: none
	clock clock.WithTicker
	log   logr.Logger

	converse Converse        // nil: maxConversations is the only limit
	changed  <-chan struct{} // signals that permissions have changed; nil: never

	mu            sync.Mutex
	openRequests  map[*openRequest]struct{}
	conversations *tally.Tally[string] // open conversations, by the name of their key
}

// AuthOptions configure an Authenticator.
type AuthOptions struct {
	Keys       *KeyFile               // tried first; nil: there is none
	Others     []access.Authenticator // tried in order, after the file
	Authorizer access.Authorizer      // nil: the built-in roles, without bindings
	// Changed signals that permissions have changed: conversations and watches are then reviewed at once. Nil: they are reviewed within
	// seconds.
	Changed  <-chan struct{}
	Converse Converse // nil: all conversations are admitted
	Clock    clock.WithTicker
	Log      logr.Logger
}

// Converse admits or refuses a conversation with a sandbox by the limits of its caller. The header lines belong to the response in both
// cases.
type Converse func(principal.Principal) (header map[string]string, leave func(), err error)

// NewAuth returns an Authenticator.
func NewAuth(o AuthOptions) *Authenticator {
	a := &Authenticator{
		may: o.Authorizer, file: o.Keys, clock: o.Clock, log: o.Log, changed: o.Changed, converse: o.Converse,
		openRequests: map[*openRequest]struct{}{}, conversations: tally.New[string](maxConversations),
	}
	chain := access.Chain{}
	if o.Keys != nil {
		chain = append(chain, o.Keys)
	}
	chain = append(chain, o.Others...)
	a.who = chain
	if a.may == nil {
		a.may = (*access.Policy)(nil)
	}
	return a
}

// Run applies changes of the keys file, and ends requests that are no longer permitted, until ctx ends. Requests with API keys are
// reviewed at once; because a review of the others may wait for an API server.
func (a *Authenticator) Run(ctx context.Context) error {
	due := make(chan struct{}, 1) // a review of the others
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-due:
				a.review(ctx, func(g *openRequest) bool { return !g.hasKey() })
			}
		}
	})
	ticker := a.clock.NewTicker(rereadEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.changed:
		case <-ticker.C():
			if a.file != nil {
				a.file.takeUp()
			}
		}
		select {
		case due <- struct{}{}:
		default: // a review is due already
		}
		a.review(ctx, (*openRequest).hasKey)
	}
}

// Admit implements serve.Admit. Over REST, where the method is not known yet, any valid token passes. The permission is checked once the
// method is known.
func (a *Authenticator) Admit(ctx context.Context, method string, authorization []string) (caller string, err error) {
	token, err := bearer(authorization)
	if err != nil {
		return "", err
	}
	if method == "" {
		who, err := a.identify(ctx, token)
		if err != nil {
			return "", err
		}
		return who.Name, nil
	}
	p, err := a.admit(ctx, a.may, token, access.OfMethod(method))
	return p.Name, err
}

// authenticate returns the caller's principal if it may make the call.
func (a *Authenticator) authenticate(ctx context.Context, m access.Method) (principal.Principal, error) {
	token, err := bearer(metadata.ValueFromIncomingContext(ctx, "authorization"))
	if err != nil {
		return principal.Principal{}, err
	}
	return a.admit(ctx, a.may, token, m)
}

func (a *Authenticator) identify(ctx context.Context, token string) (*access.Identity, error) {
	who, err := a.who.Authenticate(ctx, token)
	switch {
	case errors.Is(err, access.ErrNotMine):
		return nil, problem.New(problem.Unauthenticated, "the bearer token is not known")
	case err != nil:
		return nil, err
	}
	return who, nil
}

func (a *Authenticator) admit(ctx context.Context, may access.Authorizer, token string, m access.Method) (principal.Principal, error) {
	var p principal.Principal
	who, err := a.identify(ctx, token)
	if err == nil {
		p, err = authorize(ctx, may, who, m)
	}
	if err != nil {
		audit.NoteRefusal(ctx, audit.As(who), err)
	}
	return p, err
}

// looking is the method that shows a sandbox to a caller.
var looking = access.OfMethod(sandboxv1.Sandboxes_GetSandbox_FullMethodName)

// authorize returns a caller's principal if the caller has the permission of a method.
func authorize(ctx context.Context, may access.Authorizer, who *access.Identity, m access.Method) (principal.Principal, error) {
	grant, err := may.Authorize(ctx, who, m.Permission)
	if err != nil {
		return principal.Principal{}, err
	}
	part := grant.For(m.Reach)
	switch {
	case part.Empty() && grant.Away != nil:
		return principal.Principal{}, grant.Away
	case grant.Empty():
		return principal.Principal{}, access.Forbidden(who, m.Permission)
	case part.Empty():
		return principal.Principal{}, access.TooNarrow(who, m)
	}
	p := principal.Of(who, m.Permission, part)
	if !ofSandbox(m) || m.Permission == looking.Permission {
		return p, nil
	}
	look, err := may.Authorize(ctx, who, looking.Permission)
	if err != nil {
		return principal.Principal{}, err
	}
	if seen := principal.Of(who, looking.Permission, look); !seen.Same(p.As(looking.Permission)) {
		p = p.WithSeeing(seen)
	}
	return p, nil
}

// ofSandbox reports whether a method concerns a sandbox, or a conversation with one.
func ofSandbox(m access.Method) bool {
	return m.Resource == access.Sandboxes || strings.HasPrefix(m.Resource, access.Sandboxes+"/")
}

func bearer(values []string) (string, error) {
	if len(values) != 1 {
		return "", problem.New(problem.Unauthenticated, "a header Authorization: Bearer %s… is needed", TokenPrefix)
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", problem.New(problem.Unauthenticated, "the header Authorization is not of the form: Bearer %s…", TokenPrefix)
	}
	return strings.TrimSpace(token), nil
}

// Unary admits calls that the caller may make. The handler's context has the principal.
func (a *Authenticator) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if strings.HasPrefix(info.FullMethod, "/"+healthv1.Health_ServiceDesc.ServiceName+"/") {
		return handler(ctx, req) // probes have no keys
	}
	m := access.OfMethod(info.FullMethod)
	p, err := a.authenticate(ctx, m)
	if err != nil {
		return nil, err
	}
	audit.Identify(ctx, audit.As(p.Identity))
	if named, ok := req.(interface{ GetId() string }); ok && m.Resource == access.Clusters && m.Reach == access.All {
		if err := p.CheckCluster(named.GetId()); err != nil {
			return nil, p.Settle(m.Changes, err)
		}
	}
	resp, err := handler(principal.With(ctx, p), req)
	if err = p.Settle(m.Changes, err); err != nil {
		return nil, err
	}
	return resp, nil
}

// Stream is Unary for streams: watches, reflection and backups. The stream's context ends, with a cause, once its key would not be admitted
// any more or has other permissions; because a watch can last for days.
func (a *Authenticator) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	token, err := bearer(metadata.ValueFromIncomingContext(stream.Context(), "authorization"))
	if err != nil {
		return err
	}
	m := access.OfMethod(info.FullMethod)
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	// The stream is registered as an open request before its key is checked, so that a revocation in the meantime is noticed.
	g := &openRequest{token: token, method: m, end: end}
	defer a.enter(g)()
	p, err := a.admit(ctx, g.lastGrants.recording(a.may), token, m)
	if err != nil {
		return err
	}
	a.admitted(g, p)
	p.OnFailure(end) // after a failure it is not known what a watch may show
	return p.Settle(true, handler(srv, &guestStream{stream, principal.With(ctx, p)}))
}

// guestStream is a stream whose context has a principal.
type guestStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *guestStream) Context() context.Context { return s.ctx }

// HTTP admits requests of callers that may have the conversation that next serves. The handler's context has the principal. It ends, with a
// cause, once the caller would not be admitted any more, or not to this sandbox or cluster; because a conversation can last for days.
func (a *Authenticator) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := bearer(r.Header.Values("Authorization"))
		if err != nil {
			problem.FromError(err).Write(w)
			return
		}
		ctx, end := context.WithCancelCause(r.Context())
		defer end(nil)
		// The request is registered as an open request before its key is checked, so that a revocation in the meantime is noticed.
		m := ofHandler(next)
		g := &openRequest{token: token, method: m, end: end}
		defer a.enter(g)()
		p, err := a.admit(ctx, g.lastGrants.recording(a.may), token, m)
		if err != nil {
			problem.FromError(err).Write(w)
			return
		}
		p = p.WithReached()
		a.admitted(g, p)
		refuse := func(err error) {
			audit.NoteRefusal(ctx, audit.As(p.Identity), err)
			problem.FromError(err).Write(w)
		}
		if !a.conversations.Enter(p.Name) {
			refuse(problem.New(problem.RateLimited, "%s has %d conversations already", p.Identity.Caller(), maxConversations).
				WithRetryAfter(time.Second))
			return
		}
		defer a.conversations.Leave(p.Name)
		if a.converse != nil {
			header, leave, err := a.converse(p)
			for name, value := range header {
				if err != nil || m.Permission != access.Ports && m.Permission != access.Proxy { // a port or a proxied API server sets its own header
					w.Header().Set(name, value)
				}
			}
			if err != nil {
				refuse(err)
				return
			}
			defer leave()
		}
		next.ServeHTTP(w, r.WithContext(principal.With(ctx, p)))
	})
}

// ofHandler returns the method that a handler of conversations requires.
func ofHandler(h http.Handler) access.Method {
	if c, ok := h.(interface{ Kind() string }); ok {
		if m, ok := access.OfConversation(c.Kind()); ok {
			return m
		}
	}
	return access.OfMethod("")
}
