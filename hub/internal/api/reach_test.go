// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/hub/internal/grants"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// visitors notes which callers reach a sandbox.
type visitors []string

func (v *visitors) Open(ctx context.Context, _ string, _ *federationv1.ReachCall) (reach.Tunnel, error) {
	*v = append(*v, principal.From(ctx).Team)
	return nil, problem.New(problem.NotFound, "no sandbox")
}

func TestReachNeedsTheScopeClaim(t *testing.T) {
	for _, c := range []struct {
		scope Scope
		shows bool
		want  int
	}{
		{ScopeClaim, true, http.StatusNotFound}, {ScopeAdmin, true, http.StatusNotFound},
		{ScopeRead, true, http.StatusForbidden}, {ScopeClaim, false, http.StatusUnauthorized},
	} {
		token, auth := authOf(t, Key{Name: "n", Team: "red", Scopes: []Scope{c.scope}})
		reached := &visitors{}
		handler := reach.NewHandler(reached, logr.Discard())
		for _, path := range []string{"/v1/sandboxes/a-east/logs", "/v1/sandboxes/a-east/ports/80/"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			if c.shows {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			auth.HTTP(handler.Match(r)).ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("a key with the scope %s, shown %t, is answered %d, want %d: %s", c.scope, c.shows, w.Code, c.want, w.Body)
			}
		}
		allowed := c.want == http.StatusNotFound
		if allowed != (len(*reached) == 2) || allowed && (*reached)[0] != "red" {
			t.Errorf("with the scope %s, shown %t, these got through: %v", c.scope, c.shows, *reached)
		}
	}
}

// conversation lasts until it is ended.
type conversation struct {
	reach.Tunnel
	cut chan struct{}
	end func()
}

func (c *conversation) Recv() ([]byte, error) {
	<-c.cut
	return nil, reach.ErrGoingAway
}
func (c *conversation) CloseSend() error     { return nil }
func (c *conversation) Cut() <-chan struct{} { return c.cut }
func (c *conversation) Close(error)          { c.end() }

type host struct{ opened chan *conversation }

func (h host) Open(context.Context, string, *federationv1.ReachCall) (reach.Tunnel, error) {
	cut := make(chan struct{})
	c := &conversation{cut: cut, end: sync.OnceFunc(func() { close(cut) })}
	h.opened <- c
	return c, nil
}

// A conversation outlives neither its key's expiry nor the key.
func TestConversationsEndWithTheirKey(t *testing.T) {
	for name, c := range map[string]struct {
		until time.Duration
		taken bool // the key is removed from the file
		ends  bool
	}{"expired": {until: time.Minute, ends: true}, "taken away": {until: time.Hour, taken: true, ends: true}, "good": {until: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			now := clocktesting.NewFakeClock(time.Now())
			expires := now.Now().Add(c.until)
			token, path := keyFile(t, Key{Name: "n", Team: "red", Scopes: []Scope{ScopeClaim}, Expires: &expires})
			auth, err := newAuthenticator(path, now, logr.Discard())
			must.Succeed(t, err)
			h := host{make(chan *conversation, 1)}
			handler := reach.NewHandler(h, logr.Discard())
			over := make(chan struct{})
			r := httptest.NewRequest(http.MethodGet, "/v1/sandboxes/a-east/logs?follow", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			go func() {
				defer close(over)
				auth.HTTP(handler.Match(r)).ServeHTTP(httptest.NewRecorder(), r)
			}()
			talk := <-h.opened

			now.Step(2 * time.Minute)
			if c.taken {
				_, entry, err := NewToken(Key{Name: "other", Team: "red", Scopes: []Scope{ScopeClaim}})
				must.Succeed(t, err)
				must.Succeed(t, os.WriteFile(path, entry, 0o600))
			}
			_, err = auth.file.reread()
			must.Succeed(t, err)
			auth.review(t.Context(), (*openRequest).hasKey)
			if c.ends {
				<-talk.cut
			} else {
				select {
				case <-talk.cut:
					t.Error("the conversation was ended though its key is good")
				default:
				}
				talk.Close(nil)
			}
			<-over
			if len(auth.openRequests) != 0 || auth.conversations.Len() != 0 {
				t.Error("a request that has ended is remembered (I10)")
			}
		})
	}
}

// placed is a host of one sandbox, which checks its callers as package sandboxes does.
type placed struct {
	host
	sandbox *sandboxv1.Sandbox
}

func (p placed) Open(ctx context.Context, id string, call *federationv1.ReachCall) (reach.Tunnel, error) {
	if err := principal.From(ctx).Check(p.sandbox); err != nil {
		return nil, err
	}
	return p.host.Open(ctx, id, call)
}

// converse opens a conversation with a sandbox of namespace a on cluster east. over is closed at its end.
func converse(t *testing.T, auth *Authenticator, token string) (talk *conversation, over <-chan struct{}) {
	t.Helper()
	h := placed{host{make(chan *conversation, 1)}, &sandboxv1.Sandbox{Namespace: "a", Env: "py", ClusterId: "east", Team: "red"}}
	handler := reach.NewHandler(h, logr.Discard())
	r := httptest.NewRequest(http.MethodGet, "/v1/sandboxes/a-east/logs?follow", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	w, ended := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(ended)
		auth.HTTP(handler.Match(r)).ServeHTTP(w, r)
	}()
	select {
	case talk = <-h.opened:
	case <-ended:
		t.Fatalf("the conversation was not opened: %d %s", w.Code, w.Body)
	}
	return talk, ended
}

// reviewed has the one conversation reviewed, and returns why it was ended; nil: it goes on.
func reviewed(t *testing.T, auth *Authenticator) (cause error) {
	t.Helper()
	auth.mu.Lock()
	for g := range auth.openRequests {
		end := g.end
		g.end = func(err error) { cause = err; end(err) }
	}
	auth.mu.Unlock()
	auth.review(t.Context(), (*openRequest).hasKey)
	return cause
}

// watching begins a watch, which is an open request until its end.
func watching(t *testing.T, auth *Authenticator, token string) (p principal.Principal, end func()) {
	t.Helper()
	g := &openRequest{token: token, method: access.OfMethod(sandboxv1.Sandboxes_WatchSandboxes_FullMethodName), end: func(error) {}}
	end = auth.enter(g)
	p, err := auth.admit(t.Context(), g.lastGrants.recording(auth.may), token, g.method)
	must.Succeed(t, err)
	auth.admitted(g, p)
	return p, end
}

// A conversation ends once its sandbox is not open to its caller any more, and neither with other permissions nor with a rotation.
func TestConversationsEndWithThePermissionForTheirSandbox(t *testing.T) {
	policy, err := grants.New(t.Context(), grants.Options{Store: openStore(t, "registry"), Clock: clock.RealClock{}, Log: testlog.New(t)})
	must.Succeed(t, err)
	key, err := grants.KeysAPI{Service: policy}.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{Name: "k", Team: "red"})
	must.Succeed(t, err)
	auth := NewAuth(AuthOptions{Others: []access.Authenticator{policy}, Authorizer: policy, Clock: clock.RealClock{}, Log: testlog.New(t)})
	bind := func(role string, namespaces, envs, clusters []string) {
		_, err := grants.AccessAPI{Service: policy}.PutAccess(t.Context(), &sandboxv1.AccessPolicy{Bindings: []*sandboxv1.RoleBinding{{
			Name: "k", Role: role, Namespaces: namespaces, Envs: envs, Clusters: clusters,
			Subjects: []*sandboxv1.Subject{{Kind: access.SubjectKey, Name: "k"}},
		}}})
		must.Succeed(t, err)
	}
	for what, c := range map[string]struct {
		role                       string
		namespaces, envs, clusters []string
		ends                       bool
	}{
		"another namespace": {access.Developer, []string{"b"}, nil, nil, true},
		"another Env":       {access.Developer, []string{"a"}, []string{"a/go"}, nil, true},
		"another cluster":   {access.Developer, []string{"a"}, nil, []string{"west"}, true},
		"another role":      {access.Viewer, []string{"a"}, nil, nil, true},
		"more":              {access.Developer, []string{"a", "b"}, nil, nil, false},
		"less, and its own": {access.Developer, []string{"a"}, []string{"a/py"}, []string{"east"}, false},
	} {
		bind(access.Developer, []string{"a"}, nil, nil)
		talk, over := converse(t, auth, key.GetToken())
		bind(c.role, c.namespaces, c.envs, c.clusters)
		cause := reviewed(t, auth)
		if (cause != nil) != c.ends {
			t.Errorf("%s: it ended: %v, want it to end: %t", what, cause, c.ends)
		}
		if cause == nil {
			talk.Close(nil)
		}
		<-talk.cut
		<-over
	}
	bind(access.Developer, []string{"a"}, nil, nil)
	talk, over := converse(t, auth, key.GetToken())
	_, err = grants.KeysAPI{Service: policy}.RotateKey(t.Context(), &sandboxv1.RotateKeyRequest{Name: "k"})
	must.Succeed(t, err)
	if cause := reviewed(t, auth); cause != nil {
		t.Errorf("a rotation ended it: %v", cause)
	}
	talk.Close(nil)
	<-over
}

// A conversation goes on with a key that permits more, and ends with one that does not permit its sandbox any more.
func TestConversationsGoOnWithMoreScopes(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*Key)
		ends   bool
	}{
		"one more scope":     {func(k *Key) { k.Scopes = []Scope{ScopeClaim, ScopeAdmin} }, false},
		"one more namespace": {func(k *Key) { k.Namespaces = []string{"a", "b"} }, false},
		"all namespaces":     {func(k *Key) { k.Namespaces, k.AllNamespaces = nil, true }, false},
		"all teams":          {func(k *Key) { k.Team, k.AllTeams = "", true }, false},
		"another scope":      {func(k *Key) { k.Scopes = []Scope{ScopeRead} }, true},
		"another namespace":  {func(k *Key) { k.Namespaces = []string{"b"} }, true},
		"another team":       {func(k *Key) { k.Team = "blue" }, true},
		"one user":           {func(k *Key) { k.User = "ann" }, true},
	} {
		t.Run(what, func(t *testing.T) {
			token, path := keyFile(t, Key{Name: "n", Team: "red", Namespaces: []string{"a"}, Scopes: []Scope{ScopeClaim}})
			auth, err := newAuthenticator(path, clock.RealClock{}, testlog.New(t))
			must.Succeed(t, err)
			talk, over := converse(t, auth, token)
			data, err := os.ReadFile(path)
			must.Succeed(t, err)
			var file keysFile
			must.Succeed(t, yaml.Unmarshal(data, &file))
			c.change(&file.Keys[0])
			data, err = yaml.Marshal(file)
			must.Succeed(t, err)
			must.Succeed(t, os.WriteFile(path, data, 0o600))
			_, err = auth.file.reread()
			must.Succeed(t, err)
			if cause := reviewed(t, auth); (cause != nil) != c.ends {
				t.Errorf("it ended: %v, want it to end: %t", cause, c.ends)
			}
			talk.Close(nil)
			<-over
		})
	}
}

// asking is an Authorizer that is asked about each namespace.
type asking func(namespace string) (bool, error)

func (a asking) Authorize(context.Context, *access.Identity, access.Permission) (access.Grant, error) {
	return access.Grant{Ask: a}, nil
}

// A conversation whose namespace has to be asked about ends once the permission there is gone, and not while that cannot be asked.
func TestConversationsEndWithTheAuthorizersPermission(t *testing.T) {
	var gone, away atomic.Bool
	token, path := keyFile(t, Key{Name: "n", Team: "red", Scopes: []Scope{ScopeClaim}})
	keys, err := NewKeyFile(path, clock.RealClock{}, testlog.New(t))
	must.Succeed(t, err)
	ask := asking(func(namespace string) (bool, error) {
		if away.Load() {
			return false, problem.New(problem.Unavailable, "the API server does not respond")
		}
		return namespace == "a" && !gone.Load(), nil
	})
	auth := NewAuth(AuthOptions{Keys: keys, Authorizer: ask, Clock: clock.RealClock{}, Log: testlog.New(t)})
	talk, over := converse(t, auth, token)
	away.Store(true)
	if cause := reviewed(t, auth); cause != nil {
		t.Errorf("while the Authorizer is away it ended: %v", cause)
	}
	away.Store(false)
	if cause := reviewed(t, auth); cause != nil {
		t.Errorf("with its permission it ended: %v", cause)
	}
	gone.Store(true)
	if cause := reviewed(t, auth); cause == nil {
		t.Error("it goes on without its permission")
	}
	talk.Close(nil)
	<-over
}

// clusterRBAC is an Authorizer that permits everything, nothing, or cannot be asked.
type clusterRBAC struct{ gone, away atomic.Bool }

func (c *clusterRBAC) Authorize(context.Context, *access.Identity, access.Permission) (access.Grant, error) {
	switch {
	case c.away.Load():
		return access.Grant{}, problem.New(problem.Unavailable, "the API server does not respond")
	case c.gone.Load():
		return access.Grant{}, nil
	}
	return access.Grant{Scopes: []access.Scope{{AllNamespaces: true, AllTeams: true, Whole: true, Shared: true}}}, nil
}

// What one Authorizer permits goes on while it cannot be asked, also where another one permits something else. Calls go by what that one
// permits then; a method for which that does not suffice is neither permitted nor refused.
func TestConversationsGoOnWhileOneOfTwoAuthorizersIsAway(t *testing.T) {
	token, path := keyFile(t, Key{Name: "n", Team: "red", Namespaces: []string{"b"}, Scopes: []Scope{ScopeAdmin}})
	keys, err := NewKeyFile(path, clock.RealClock{}, testlog.New(t))
	must.Succeed(t, err)
	rbac := &clusterRBAC{}
	auth := NewAuth(AuthOptions{
		Keys: keys, Authorizer: access.Either{(*access.Policy)(nil), rbac}, Clock: clock.RealClock{}, Log: testlog.New(t),
	})
	admit := func(method string) (principal.Principal, error) {
		return auth.admit(t.Context(), auth.may, token, access.OfMethod(method))
	}
	for what, begin := range map[string]func() (end func()){
		"a conversation": func() func() {
			talk, over := converse(t, auth, token) // in namespace a, which is none of the key's
			return func() { talk.Close(nil); <-over }
		},
		"a watch": func() func() {
			_, end := watching(t, auth, token)
			return end
		},
	} {
		rbac.away.Store(false)
		rbac.gone.Store(false)
		end := begin()
		rbac.away.Store(true)
		if cause := reviewed(t, auth); cause != nil {
			t.Errorf("%s: while an Authorizer is away it ended: %v", what, cause)
		}
		rbac.away.Store(false)
		if cause := reviewed(t, auth); cause != nil {
			t.Errorf("%s: with its permission it ended: %v", what, cause)
		}
		rbac.gone.Store(true)
		if cause := reviewed(t, auth); cause == nil {
			t.Errorf("%s: it goes on without its permission", what)
		}
		end()
	}
	rbac.away.Store(true)
	p, err := admit(sandboxv1.Envs_GetEnv_FullMethodName)
	if must.Succeed(t, err); !p.SeesNamespace("b") || p.SeesNamespace("a") {
		t.Errorf("while an Authorizer is away, a call is for the namespaces %v", p.Namespaces)
	}
	if _, err := admit(sandboxv1.Clusters_DrainCluster_FullMethodName); err == nil || problem.FromError(err).Reason != problem.Unavailable {
		t.Errorf("what only the Authorizer that is away could permit: %v", err)
	}
}

// bindings are a policy that changes.
type bindings struct{ atomic.Pointer[access.Policy] }

func (b *bindings) Authorize(ctx context.Context, who *access.Identity, p access.Permission) (access.Grant, error) {
	return b.Load().Authorize(ctx, who, p)
}

// What a binding gave ends with it, also while an Authorizer that gave nothing is away. What that one gave goes on.
func TestABindingsEndHoldsWhileAnotherAuthorizerIsAway(t *testing.T) {
	token, path := keyFile(t, Key{Name: "n", Team: "red", Scopes: []Scope{ScopeRead}})
	keys, err := NewKeyFile(path, clock.RealClock{}, testlog.New(t))
	must.Succeed(t, err)
	bound := func(namespace string) *access.Policy {
		return access.NewPolicy(&sandboxv1.AccessPolicy{Bindings: []*sandboxv1.RoleBinding{{
			Name: "n", Role: access.Developer, Namespaces: []string{namespace}, Subjects: []*sandboxv1.Subject{{Kind: access.SubjectKey, Name: "n"}},
		}}})
	}
	for what, c := range map[string]struct {
		gives bool // the Authorizer that is away then
		after *access.Policy
		ends  bool
	}{
		"as before":                       {false, bound("a"), false},
		"another namespace":               {false, bound("b"), true},
		"no binding":                      {false, nil, true},
		"no binding, and the other gives": {true, nil, false},
	} {
		policy, rbac := &bindings{}, &clusterRBAC{}
		policy.Store(bound("a"))
		rbac.gone.Store(!c.gives)
		auth := NewAuth(AuthOptions{Keys: keys, Authorizer: access.Either{policy, rbac}, Clock: clock.RealClock{}, Log: testlog.New(t)})
		for kind, begin := range map[string]func() (end func()){
			"a conversation": func() func() {
				talk, over := converse(t, auth, token)
				return func() { talk.Close(nil); <-over }
			},
			"a watch": func() func() {
				_, end := watching(t, auth, token)
				return end
			},
		} {
			policy.Store(bound("a"))
			rbac.away.Store(false)
			end := begin()
			policy.Store(c.after)
			rbac.away.Store(true)
			if cause := reviewed(t, auth); (cause != nil) != c.ends {
				t.Errorf("%s, %s: it ended: %v, want it to end: %t", kind, what, cause, c.ends)
			}
			end()
		}
	}
}

// silent is what authenticates callers, and does not respond until it is told to.
type silent struct{ asked, respond chan struct{} }

func (s silent) Authenticate(ctx context.Context, token string) (*access.Identity, error) {
	if strings.HasPrefix(token, access.TokenPrefix) {
		return nil, access.ErrNotMine
	}
	s.asked <- struct{}{}
	select {
	case <-s.respond:
	case <-ctx.Done():
	}
	if token == "paced" {
		return nil, problem.New(problem.RateLimited, "many callers show tokens that are not known")
	}
	return nil, problem.New(problem.Unavailable, "the API server does not respond")
}

// Guests whose tokens are checked elsewhere, which does not respond, delay neither each other nor the end of one whose key is taken away.
// What changes meanwhile has them reviewed once more.
func TestAReviewWaitsForNoOtherGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token, path := keyFile(t, Key{Name: "n", Team: "red", Namespaces: []string{"a"}, Scopes: []Scope{ScopeRead}})
		keys, err := NewKeyFile(path, clock.RealClock{}, testlog.New(t))
		must.Succeed(t, err)
		changed, others := make(chan struct{}), silent{make(chan struct{}), make(chan struct{})}
		auth := NewAuth(AuthOptions{
			Keys: keys, Others: []access.Authenticator{others}, Changed: changed, Clock: clocktesting.NewFakeClock(time.Now()), Log: testlog.New(t),
		})
		p, leave := watching(t, auth, token)
		defer leave()
		ended := make(chan error, 1)
		auth.mu.Lock()
		for g := range auth.openRequests {
			g.end = func(err error) { ended <- err }
		}
		auth.mu.Unlock()
		for _, shown := range []string{"of a cluster", "paced"} {
			g := &openRequest{token: shown, end: func(err error) { t.Errorf("it ended: %v", err) }}
			g.method = access.OfMethod(sandboxv1.Sandboxes_WatchSandboxes_FullMethodName)
			defer auth.enter(g)()
			auth.admitted(g, p)
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- auth.Run(ctx) }()

		changed <- struct{}{}
		<-others.asked
		<-others.asked
		_, another, err := NewToken(Key{Name: "another", Team: "red", Scopes: []Scope{ScopeRead}})
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(path, another, 0o600))
		_, err = keys.reread()
		must.Succeed(t, err)
		changed <- struct{}{}
		if err := <-ended; problem.FromError(err).Reason != problem.Unauthenticated {
			t.Errorf("a request whose key is taken away ended with %v", err)
		}
		others.respond <- struct{}{}
		others.respond <- struct{}{}
		<-others.asked
		<-others.asked
		cancel()
		must.Succeed(t, <-over)
	})
}

// eachNamespace is an Authorizer that is asked about each namespace, permits a, and may be away.
type eachNamespace struct{ away atomic.Bool }

func (e *eachNamespace) Authorize(context.Context, *access.Identity, access.Permission) (access.Grant, error) {
	ask := func(namespace string) (bool, error) {
		if e.away.Load() {
			return false, problem.New(problem.Unavailable, "the API server does not respond")
		}
		return namespace == "a", nil
	}
	_, err := ask("")
	return access.Grant{Ask: ask}, err
}

// While an Authorizer that is asked about each namespace is away, a conversation goes on, and a watch until it has to ask.
func TestAWatchGoesOnUntilItHasToAsk(t *testing.T) {
	token, path := keyFile(t, Key{Name: "n", Team: "red", Namespaces: []string{"b"}, Scopes: []Scope{ScopeAdmin}})
	keys, err := NewKeyFile(path, clock.RealClock{}, testlog.New(t))
	must.Succeed(t, err)
	rbac := &eachNamespace{}
	auth := NewAuth(AuthOptions{
		Keys: keys, Authorizer: access.Either{(*access.Policy)(nil), rbac}, Clock: clock.RealClock{}, Log: testlog.New(t),
	})
	talk, over := converse(t, auth, token)
	rbac.away.Store(true)
	if cause := reviewed(t, auth); cause != nil {
		t.Errorf("the conversation ended: %v", cause)
	}
	talk.Close(nil)
	<-over

	rbac.away.Store(false)
	p, end := watching(t, auth, token)
	defer end()
	var failed error
	p.OnFailure(func(err error) { failed = err })
	if !p.SeesNamespace("a") {
		t.Error("the watch does not show namespace a")
	}
	rbac.away.Store(true)
	if cause := reviewed(t, auth); cause != nil || failed != nil {
		t.Errorf("the watch ended before it had to ask: %v, %v", cause, failed)
	}
	if p.SeesNamespace("a") || failed == nil || problem.FromError(failed).Reason != problem.Unavailable {
		t.Errorf("once it has to ask, the watch fails with %v", failed)
	}
}

// I14: one key's conversations take no other's place.
func TestI14EachKeyHasItsConversations(t *testing.T) {
	greedy, first, err := NewToken(Key{Name: "greedy", Scopes: []Scope{ScopeClaim}})
	must.Succeed(t, err)
	other, second, err := NewToken(Key{Name: "other", Scopes: []Scope{ScopeClaim}})
	must.Succeed(t, err)
	path := filepath.Join(t.TempDir(), "keys.yaml")
	must.Succeed(t, os.WriteFile(path, append(first, bytes.TrimPrefix(second, []byte("keys:\n"))...), 0o600))
	auth, err := newAuthenticator(path, clock.RealClock{}, logr.Discard())
	must.Succeed(t, err)
	h := host{make(chan *conversation, 1)}
	handler := reach.NewHandler(h, logr.Discard())
	visit := func(token string) int {
		r := httptest.NewRequest(http.MethodGet, "/v1/sandboxes/a-east/logs?follow", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		auth.HTTP(handler.Match(r)).ServeHTTP(w, r)
		return w.Code
	}
	var under sync.WaitGroup
	var open []*conversation
	for range maxConversations {
		under.Go(func() { visit(greedy) })
		open = append(open, <-h.opened)
	}
	over := make(chan int, 1)
	under.Go(func() { over <- visit(greedy) })
	select {
	case code := <-over:
		if code != http.StatusTooManyRequests {
			t.Errorf("one conversation more than a key may have: %d", code)
		}
	case c := <-h.opened:
		t.Error("a key has one conversation more than it may have")
		open = append(open, c)
	}
	under.Go(func() {
		if code := visit(other); code != http.StatusOK {
			t.Errorf("another key's conversation: %d", code)
		}
	})
	for _, c := range append(open, <-h.opened) {
		c.Close(nil)
	}
	under.Wait()
}

// unchecked is what authenticates callers, and fails with one reason.
type unchecked problem.Reason

func (u unchecked) Authenticate(context.Context, string) (*access.Identity, error) {
	return nil, problem.New(problem.Reason(u), "the token is not checked")
}

// An open request whose token cannot be checked goes on until it expires. Where too many others are checked, which a caller could send, it
// ends sooner.
func TestAGuestWhoseTokenIsNotChecked(t *testing.T) {
	for _, c := range []struct {
		reason problem.Reason
		after  time.Duration
		ends   problem.Reason
	}{
		{problem.Unavailable, 59 * time.Minute, ""},
		{problem.Unavailable, time.Hour, problem.Unauthenticated},
		{problem.RateLimited, unprovedFor, ""},
		{problem.RateLimited, unprovedFor + time.Second, problem.RateLimited},
	} {
		clk := clocktesting.NewFakeClock(time.Now())
		auth := NewAuth(AuthOptions{Others: []access.Authenticator{unchecked(c.reason)}, Clock: clk, Log: testlog.New(t)})
		g := &openRequest{token: "of a cluster", method: access.OfMethod(sandboxv1.Sandboxes_WatchSandboxes_FullMethodName)}
		who := &access.Identity{Name: "ann", Team: "red", Namespaces: []string{"a"}, Roles: []string{"viewer"}}
		who.Expires = new(clk.Now().Add(time.Hour))
		p, err := authorize(t.Context(), g.lastGrants.recording(auth.may), who, g.method)
		must.Succeed(t, err)
		auth.admitted(g, p)
		clk.Step(c.after)
		err = auth.check(t.Context(), g, &p)
		if ends := err != nil; ends != (c.ends != "") || ends && problem.FromError(err).Reason != c.ends {
			t.Errorf("%s, after %s: it ended: %v, want %q", c.reason, c.after, err, c.ends)
		}
	}
}
