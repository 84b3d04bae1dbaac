// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"k8s.io/utils/clock"

	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/tally"
)

// maxGuests is how many conversations with sandboxes the caller with one key has at a time. Each costs the hub up to 0.5 MiB of
// buffers and windows (I14).
const maxGuests = 512

// rereadEvery bounds how late a change of the keys file is noticed. The file is polled, not watched; because a mounted Secret
// changes by a swap of links.
const rereadEvery = 5 * time.Second

// Authenticator authenticates callers by the keys of a file.
type Authenticator struct {
	path  string
	clock clock.WithTicker
	log   logr.Logger
	keys  atomic.Pointer[Keys]
	last  []byte

	mu     sync.Mutex
	guests map[*guest]struct{}
	seats  *tally.Tally[string] // of guests, by the name of their key
}

// guest is a request that may last longer than its key.
type guest struct {
	token string
	needs need
	end   context.CancelCauseFunc
	as    *principal.Principal // what it was admitted as; nil: that may change
}

// NewAuthenticator reads the file, which must be valid at the start.
func NewAuthenticator(path string, c clock.WithTicker, log logr.Logger) (*Authenticator, error) {
	a := &Authenticator{path: path, clock: c, log: log, guests: map[*guest]struct{}{}, seats: tally.New[string](maxGuests)}
	if _, err := a.reread(); err != nil {
		return nil, err
	}
	return a, nil
}

// Run applies changes of the file until ctx ends.
func (a *Authenticator) Run(ctx context.Context) error {
	ticker := a.clock.NewTicker(rereadEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			switch changed, err := a.reread(); {
			case err != nil:
				a.log.Error(err, "API keys not taken up; those from before stay valid")
			case changed:
				a.log.Info("API keys taken up", "file", a.path, "keys", len(a.keys.Load().keys))
			}
			a.review()
		}
	}
}

func (a *Authenticator) reread() (changed bool, err error) {
	data, err := os.ReadFile(a.path)
	if err != nil {
		return false, fmt.Errorf("API keys: %w", err)
	}
	if a.last != nil && bytes.Equal(a.last, data) {
		return false, nil
	}
	keys, err := ParseKeys(data)
	if err != nil {
		return false, fmt.Errorf("API keys file %s: %w", a.path, err)
	}
	a.keys.Store(keys)
	a.last = data
	if names := keys.blind(); len(names) > 0 {
		a.log.Info("API keys without namespaces see nothing: give them namespaces, or allNamespaces: true", "keys", names)
	}
	return true, nil
}

// Admit implements serve.Admit. Over REST, where the method is not known yet, any key passes; its scope is checked once the
// method is known.
func (a *Authenticator) Admit(_ context.Context, method string, authorization []string) (caller string, err error) {
	token, err := bearer(authorization)
	if err != nil {
		return "", err
	}
	needs := need{}
	if method != "" {
		needs = needOf(method)
	}
	p, err := a.admit(token, needs)
	return p.Name, err
}

// authenticate returns the caller's principal if its key has the scope.
func (a *Authenticator) authenticate(ctx context.Context, needs need) (principal.Principal, error) {
	token, err := bearer(metadata.ValueFromIncomingContext(ctx, "authorization"))
	if err != nil {
		return principal.Principal{}, err
	}
	return a.admit(token, needs)
}

func (a *Authenticator) admit(token string, needs need) (principal.Principal, error) {
	key := a.keys.Load().find(token)
	switch {
	case key == nil:
		return principal.Principal{}, problem.New(problem.Unauthenticated, "the bearer token is not known")
	case key.expired(a.clock.Now()):
		return principal.Principal{}, problem.New(problem.Unauthenticated, "API key %q expired at %s", key.Name,
			key.Expires.UTC().Format(time.RFC3339))
	case needs.scope != "" && !key.allows(needs.scope):
		return principal.Principal{}, problem.New(problem.Forbidden, "API key %q lacks the scope %q", key.Name, needs.scope)
	case needs.reach == reachTeams && (!key.AllTeams || key.User != ""):
		return principal.Principal{}, problem.New(problem.Forbidden,
			"API key %q is for %s, and an Env is every team's: this needs a key with allTeams", key.Name, key.bounds())
	case needs.reach == reachHub && !key.Unbound():
		return principal.Principal{}, problem.New(problem.Forbidden,
			"API key %q is for %s, and this is about the whole hub: it needs a key with allTeams and allNamespaces", key.Name, key.bounds())
	}
	return principal.Principal{
		Name: key.Name, Team: key.Team, AllTeams: key.AllTeams, User: key.User, Namespaces: key.Namespaces, AllNamespaces: key.AllNamespaces,
		Expires: key.Expires,
	}, nil
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

// Unary admits calls that their caller may make, with the principal in their context.
func (a *Authenticator) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if strings.HasPrefix(info.FullMethod, "/"+healthv1.Health_ServiceDesc.ServiceName+"/") {
		return handler(ctx, req) // probes have no keys
	}
	p, err := a.authenticate(ctx, needOf(info.FullMethod))
	if err != nil {
		return nil, err
	}
	return handler(principal.With(ctx, p), req)
}

// Stream is Unary for streams: watches, reflection and backups. The context of a stream ends, with a cause, once its key would not be
// admitted any more, or permits something else; because a watch can last for days.
func (a *Authenticator) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	token, err := bearer(metadata.ValueFromIncomingContext(stream.Context(), "authorization"))
	if err != nil {
		return err
	}
	needs := needOf(info.FullMethod)
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	// The stream is a guest before its key is checked, so that a key that is revoked meanwhile is noticed.
	g := &guest{token: token, needs: needs, end: end}
	defer a.enter(g)()
	p, err := a.admit(token, needs)
	if err != nil {
		return err
	}
	a.mu.Lock()
	g.as = &p
	a.mu.Unlock()
	return handler(srv, &guestStream{stream, principal.With(ctx, p)})
}

// guestStream is a stream whose context has a principal.
type guestStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *guestStream) Context() context.Context { return s.ctx }

// HTTP admits requests whose caller may use sandboxes, with the principal in their context. A caller with scope read sees what a
// sandbox is, not what is in it. The context ends, with a cause, once the key would not be admitted any more; because a
// conversation with a sandbox can last for days.
func (a *Authenticator) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := bearer(r.Header.Values("Authorization"))
		if err != nil {
			problem.FromError(err).Write(w)
			return
		}
		ctx, end := context.WithCancelCause(r.Context())
		defer end(nil)
		// The request is a guest before its key is checked, so that a key that is revoked meanwhile is noticed.
		defer a.enter(&guest{token: token, needs: need{scope: ScopeClaim}, end: end})()
		p, err := a.admit(token, need{scope: ScopeClaim})
		if err != nil {
			problem.FromError(err).Write(w)
			return
		}
		if !a.seats.Enter(p.Name) {
			problem.New(problem.RateLimited, "API key %q has %d conversations with sandboxes already", p.Name, maxGuests).
				WithRetryAfter(time.Second).Write(w)
			return
		}
		defer a.seats.Leave(p.Name)
		next.ServeHTTP(w, r.WithContext(principal.With(ctx, p)))
	})
}

func (a *Authenticator) enter(g *guest) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.guests[g] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.guests, g)
	}
}

// review ends the requests whose keys have expired, were revoked, or permit less, and the streams whose keys permit something else.
func (a *Authenticator) review() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for g := range a.guests {
		p, err := a.admit(g.token, g.needs)
		if err == nil && g.as != nil && !reflect.DeepEqual(p, *g.as) {
			err = problem.New(problem.Unavailable, "what API key %q permits has changed; call again", p.Name).WithRetryAfter(time.Second)
		}
		if err != nil {
			g.end(err)
		}
	}
}

// need is what a call requires of a key.
type need struct {
	scope Scope // empty: any key
	reach reachOf
}

// reachOf is the set of callers that a call concerns.
type reachOf int

const (
	reachOwn   reachOf = iota // what the caller may see; the call itself checks that
	reachTeams                // every team in a namespace that the caller may see
	reachHub                  // every caller
)

// needOf returns what a method requires. A method that is not listed here needs admin, and a key for everything.
func needOf(method string) need {
	switch method[strings.LastIndexByte(method, '/')+1:] {
	case "GetSandbox", "ListSandboxes", "WatchSandboxes",
		"GetClaim", "ListClusters", "GetCluster", "ListEnvs", "GetEnv", "ExplainEnv", "GetTemplate",
		"GetHub", "ServerReflectionInfo":
		return need{scope: ScopeRead}
	case "CreateSandbox", "ReleaseSandbox", "UpdateSandbox", "TouchSandbox", "PauseSandbox", "ResumeSandbox", "CancelClaim":
		return need{scope: ScopeClaim}
	case "PutEnv", "DeleteEnv", "PlanEnv", "RefreshEnv":
		return need{scope: ScopeAdmin, reach: reachTeams}
	default:
		return need{scope: ScopeAdmin, reach: reachHub}
	}
}
