// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/util/sets"
	clocktesting "k8s.io/utils/clock/testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// replica is a Service with a fake clock, over a store that others may share.
func replica(t *testing.T, s store.Store, change func(*Options)) (*Service, *clocktesting.FakeClock) {
	t.Helper()
	now := clocktesting.NewFakeClock(start)
	o := Options{Store: s, Clock: now, Log: testlog.New(t)}
	if change != nil {
		change(&o)
	}
	out, err := New(t.Context(), o)
	must.Succeed(t, err)
	return out, now
}

// run runs a Service until the test ends.
func run(t *testing.T, s *Service) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); must.Succeed(t, <-over) })
}

// as is the context of a call of an identity.
func as(t *testing.T, s *Service, who *access.Identity, method string) context.Context {
	t.Helper()
	m := access.OfMethod(method)
	grant, err := s.Authorize(t.Context(), who, m.Permission)
	must.Succeed(t, err)
	return principal.With(t.Context(), principal.Of(who, m.Permission, grant.For(m.Reach)))
}

var admin = &access.Identity{
	Kind: access.KindKey, Name: "root", Key: "root", AllTeams: true, AllNamespaces: true, Roles: []string{access.Admin},
}

func reasonOf(err error) problem.Reason {
	if err == nil {
		return ""
	}
	return problem.FromError(err).Reason
}

// A key is known to every replica at once, until it is revoked or expires; its token is stored nowhere.
func TestKeysLiveInTheStore(t *testing.T) {
	shared := store.NewMemory()
	one, now := replica(t, shared, nil)
	two, _ := replica(t, shared, nil)
	run(t, two)
	keys := KeysAPI{Service: one}
	made, err := keys.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{
		Name: "ci", Team: "red", Namespaces: []string{"n"}, Scopes: []string{"claim"},
	})
	must.Succeed(t, err)
	if want := start.Add(90 * 24 * time.Hour); !made.GetExpires().AsTime().Equal(want) ||
		!strings.HasPrefix(made.GetToken(), access.TokenPrefix) {
		t.Errorf("made %v, want it to expire at %s", made, want)
	}
	entries, err := shared.Range(t.Context(), "", "", 0)
	must.Succeed(t, err)
	for _, e := range entries {
		if strings.Contains(string(e.Value), made.GetToken()) {
			t.Errorf("the store has the token: %s", e.Value)
		}
	}
	who, err := one.Authenticate(t.Context(), made.GetToken())
	must.Succeed(t, err)
	if who.Team != "red" || who.Key != "ci" || len(who.Roles) != 1 || who.Roles[0] != access.Developer {
		t.Errorf("it is %+v", who)
	}
	wait.For(t, 10*time.Second, "the other replica to know the key", func(ctx context.Context) error {
		_, err := two.Authenticate(ctx, made.GetToken())
		return err
	})
	if _, err := one.Authenticate(t.Context(), made.GetToken()+"x"); !errors.Is(err, access.ErrNotMine) {
		t.Errorf("another token: %v", err)
	}
	if _, err := keys.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{Name: "ci", AllNamespaces: true}); reasonOf(err) != problem.Invalid {
		t.Errorf("the same name again: %v", err)
	}
	_, err = KeysAPI{Service: two}.DeleteKey(t.Context(), &sandboxv1.DeleteKeyRequest{Name: "ci"})
	must.Succeed(t, err)
	run(t, one)
	wait.For(t, 10*time.Second, "the first replica to hear that it is revoked", func(ctx context.Context) error {
		_, err := one.Authenticate(ctx, made.GetToken())
		return wait.If(errors.Is(err, access.ErrNotMine), err)
	})
	brief, err := keys.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{Name: "brief", ValidFor: durationpb.New(time.Hour)})
	must.Succeed(t, err)
	now.Step(59 * time.Minute)
	_, err = one.Authenticate(t.Context(), brief.GetToken())
	must.Succeed(t, err)
	now.Step(time.Minute)
	if _, err := one.Authenticate(t.Context(), brief.GetToken()); reasonOf(err) != problem.Unauthenticated {
		t.Errorf("a key that has expired: %v", err)
	}
}

// interrupted is a store that calls during once, after the next Range has read, and committed once, after the next Commit.
type interrupted struct {
	store.Shared
	during, committed func()
}

func (i *interrupted) Range(ctx context.Context, prefix, after string, limit int) ([]store.Entry, error) {
	entries, err := i.Shared.Range(ctx, prefix, after, limit)
	if during := i.during; during != nil {
		i.during = nil
		during()
	}
	return entries, err
}

func (i *interrupted) Commit(ctx context.Context, txn store.Txn) (uint64, error) {
	revision, err := i.Shared.Commit(ctx, txn)
	if committed := i.committed; committed != nil {
		i.committed = nil
		committed()
	}
	return revision, err
}

// hear passes the first transactions of a store to a Service, and calls then after each.
func hear(t *testing.T, s *Service, shared store.Shared, transactions int, then func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := shared.Watch(ctx, prefix, 0, func(events []store.Event) {
		s.heard(events)
		then()
		if transactions--; transactions == 0 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// A key that this replica has revoked stays revoked while the watch passes what was written before. What remembers that ends with the watch
// of the revocation (I10), and another replica's key of the same name is valid.
func TestALateWatchRevivesNoKey(t *testing.T) {
	for what, read := range map[string]bool{"the watch is late": false, "everything is read meanwhile": true} {
		shared := store.NewMemory()
		s, _ := replica(t, shared, nil)
		keys := KeysAPI{Service: s}
		made, err := keys.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{Name: "ci"})
		must.Succeed(t, err)
		_, err = keys.DeleteKey(t.Context(), &sandboxv1.DeleteKeyRequest{Name: "ci"})
		must.Succeed(t, err)
		if read {
			must.Succeed(t, s.load(t.Context()))
		}
		hear(t, s, shared, 2, func() {
			if _, err := s.Authenticate(t.Context(), made.GetToken()); !errors.Is(err, access.ErrNotMine) {
				t.Errorf("%s: the revoked key: %v", what, err)
			}
		})
		if left := s.state.Load().deleted; len(left) > 0 {
			t.Errorf("%s: the deletions %v are kept", what, left)
		}
		other, _ := replica(t, shared, nil)
		again, err := KeysAPI{Service: other}.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{Name: "ci"})
		must.Succeed(t, err)
		hear(t, s, shared, 3, func() {})
		_, err = s.Authenticate(t.Context(), again.GetToken())
		must.Succeed(t, err)
	}
}

// A write that this replica applies late, after it has heard that another replica has revoked the key, does not bring the key back.
func TestALateWriteRevivesNoKey(t *testing.T) {
	for what, learn := range map[string]func(s *Service, shared store.Shared){
		"it has heard": func(s *Service, shared store.Shared) { hear(t, s, shared, 2, func() {}) },
		"it has read":  func(s *Service, _ store.Shared) { must.Succeed(t, s.load(t.Context())) },
	} {
		shared := store.NewMemory()
		slow := &interrupted{Shared: shared}
		s, _ := replica(t, slow, nil)
		slow.committed = func() {
			other, _ := replica(t, shared, nil)
			_, err := KeysAPI{Service: other}.DeleteKey(t.Context(), &sandboxv1.DeleteKeyRequest{Name: "ci"})
			must.Succeed(t, err)
			learn(s, shared)
		}
		made, err := KeysAPI{Service: s}.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{Name: "ci"})
		must.Succeed(t, err)
		if _, err := s.Authenticate(t.Context(), made.GetToken()); !errors.Is(err, access.ErrNotMine) {
			t.Errorf("%s: the revoked key: %v", what, err)
		}
	}
}

// A hub on bbolt, which has no watch, revokes a key while a rotation of it is committed and not applied yet.
func TestARotationRevivesNoRevokedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &interrupted{Shared: store.NewMemory()}
		s, _ := replica(t, struct{ store.Store }{slow}, nil)
		keys := KeysAPI{Service: s}
		made, err := keys.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{Name: "ci"})
		must.Succeed(t, err)
		over := make(chan error, 1)
		slow.committed = func() {
			go func() {
				_, err := keys.DeleteKey(t.Context(), &sandboxv1.DeleteKeyRequest{Name: "ci"})
				over <- err
			}()
			synctest.Wait()
		}
		rotated, err := keys.RotateKey(t.Context(), &sandboxv1.RotateKeyRequest{Name: "ci"})
		must.Succeed(t, err)
		must.Succeed(t, <-over)
		for what, token := range map[string]string{"old": made.GetToken(), "new": rotated.GetToken()} {
			if _, err := s.Authenticate(t.Context(), token); !errors.Is(err, access.ErrNotMine) {
				t.Errorf("the %s token of the revoked key: %v", what, err)
			}
		}
	})
}

// A key that is revoked while everything is read, because another change met one of another replica, stays revoked.
func TestARevocationDuringAReadHolds(t *testing.T) {
	shared := store.NewMemory()
	slow := &interrupted{Shared: shared}
	s, _ := replica(t, slow, nil)
	keys := KeysAPI{Service: s}
	tokens := map[string]string{}
	for _, name := range []string{"one", "two"} {
		made, err := keys.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{Name: name})
		must.Succeed(t, err)
		tokens[name] = made.GetToken()
	}
	other, _ := replica(t, shared, nil)
	_, err := KeysAPI{Service: other}.RotateKey(t.Context(), &sandboxv1.RotateKeyRequest{Name: "one"}) // s does not hear of it
	must.Succeed(t, err)
	over := make(chan error, 1)
	slow.during = func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := keys.DeleteKey(t.Context(), &sandboxv1.DeleteKeyRequest{Name: "two"})
			over <- err
		}()
		wait.For(t, 10*time.Second, "the revocation to be committed", func(ctx context.Context) error {
			_, there, err := shared.Get(ctx, keyPrefix+"two")
			return errors.Join(err, wait.If(!there, "the key"))
		})
		select {
		case <-done: // it has been taken up before what is read
		case <-time.After(100 * time.Millisecond):
		}
	}
	_, err = keys.DeleteKey(t.Context(), &sandboxv1.DeleteKeyRequest{Name: "one"})
	must.Succeed(t, err)
	must.Succeed(t, <-over)
	if slow.during != nil {
		t.Fatal("nothing was read")
	}
	for name, token := range tokens {
		if _, err := s.Authenticate(t.Context(), token); !errors.Is(err, access.ErrNotMine) {
			t.Errorf("the revoked key %s: %v", name, err)
		}
	}
}

// After a rotation both tokens are valid, the old one for the overlap and never longer than it was.
func TestRotation(t *testing.T) {
	s, now := replica(t, store.NewMemory(), nil)
	keys := KeysAPI{Service: s}
	before, err := keys.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{Name: "ci", ValidFor: durationpb.New(10 * time.Hour)})
	must.Succeed(t, err)
	now.Step(9*time.Hour + 30*time.Minute)
	after, err := keys.RotateKey(t.Context(), &sandboxv1.RotateKeyRequest{Name: "ci", Overlap: durationpb.New(time.Hour)})
	must.Succeed(t, err)
	valid := func(token string) bool { _, err := s.Authenticate(t.Context(), token); return err == nil }
	if !valid(before.GetToken()) || !valid(after.GetToken()) {
		t.Error("a token is not valid after the rotation")
	}
	if got := after.GetOldTokenExpires().AsTime(); !got.Equal(start.Add(10 * time.Hour)) {
		t.Errorf("the old token is valid until %s, which is longer than it was", got)
	}
	now.Step(30 * time.Minute)
	if valid(before.GetToken()) || !valid(after.GetToken()) {
		t.Error("the old token outlives its overlap, or the new one does not")
	}
	last, err := keys.RotateKey(t.Context(), &sandboxv1.RotateKeyRequest{Name: "ci", Overlap: durationpb.New(0)})
	must.Succeed(t, err)
	if valid(after.GetToken()) || !valid(last.GetToken()) {
		t.Error("without an overlap the old token is valid, or the new one is not")
	}
}

// Last uses are written together, to the minute, and survive.
func TestLastUses(t *testing.T) {
	shared := store.NewMemory()
	s, now := replica(t, shared, nil)
	made, err := KeysAPI{Service: s}.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{Name: "ci"})
	must.Succeed(t, err)
	revision, err := shared.Revision()
	must.Succeed(t, err)
	for range 100 {
		now.Step(100 * time.Millisecond)
		_, err := s.Authenticate(t.Context(), made.GetToken())
		must.Succeed(t, err)
	}
	if after, err := shared.Revision(); err != nil || after != revision {
		t.Errorf("the uses were written one by one: %d transactions, %v", after-revision, err)
	}
	s.flush(t.Context())
	other, _ := replica(t, shared, nil)
	list, err := KeysAPI{Service: other}.ListKeys(t.Context(), nil)
	must.Succeed(t, err)
	if got := list.GetKeys()[0].GetLastUsed().AsTime(); !got.Equal(start.Truncate(time.Minute)) {
		t.Errorf("last used at %s", got)
	}
}

// A caller gives no key more than it has.
func TestKeysGiveNoMore(t *testing.T) {
	s, _ := replica(t, store.NewMemory(), nil)
	_, err := AccessAPI{Service: s}.PutAccess(t.Context(), &sandboxv1.AccessPolicy{
		Roles: []*sandboxv1.Role{{Name: "keyops", Rules: []*sandboxv1.Rule{
			{Resources: []string{"keys"}, Verbs: []string{"*"}},
			{Resources: []string{"sandboxes", "envs", "templates", "clusters", "claims", "hub", "quotas"},
				Verbs: []string{"get", "list", "watch"}},
		}}},
		Bindings: []*sandboxv1.RoleBinding{{Name: "k", Role: "keyops", Namespaces: []string{"*"}, AllTeams: true,
			Subjects: []*sandboxv1.Subject{{Kind: access.SubjectUser, Name: "kim"}}}},
	})
	must.Succeed(t, err)
	kim := &access.Identity{Kind: access.KindOIDC, Name: "kim", User: "kim", AllNamespaces: true}
	keys := KeysAPI{Service: s}
	for scope, want := range map[string]problem.Reason{"read": "", "claim": problem.Forbidden, "admin": problem.Forbidden} {
		_, err := keys.CreateKey(as(t, s, kim, sandboxv1.Keys_CreateKey_FullMethodName),
			&sandboxv1.CreateKeyRequest{Name: "k-" + scope, Scopes: []string{scope}, AllTeams: true, AllNamespaces: true})
		if reasonOf(err) != want {
			t.Errorf("a key with the scope %s: %v", scope, err)
		}
	}
	_, err = keys.CreateKey(as(t, s, admin, sandboxv1.Keys_CreateKey_FullMethodName),
		&sandboxv1.CreateKeyRequest{Name: "top", Scopes: []string{"admin"}, AllTeams: true, AllNamespaces: true})
	must.Succeed(t, err)
	_, err = keys.RotateKey(as(t, s, kim, sandboxv1.Keys_RotateKey_FullMethodName), &sandboxv1.RotateKeyRequest{Name: "top"})
	if reasonOf(err) != problem.Forbidden {
		t.Errorf("a new token of an admin's key: %v", err)
	}
}

// Nor does it by what is bound to a key's name or team: in reach, for teams and for users.
func TestBoundKeysGiveNoMore(t *testing.T) {
	s, _ := replica(t, store.NewMemory(), nil)
	bind := func(name, role string, allTeams bool, kind, subject string) *sandboxv1.RoleBinding {
		return &sandboxv1.RoleBinding{Name: name, Role: role, Namespaces: []string{"*"}, AllTeams: allTeams,
			Subjects: []*sandboxv1.Subject{{Kind: kind, Name: subject}}}
	}
	_, err := AccessAPI{Service: s}.PutAccess(t.Context(), &sandboxv1.AccessPolicy{
		Roles: []*sandboxv1.Role{{Name: "keyops", Rules: []*sandboxv1.Rule{{Resources: []string{"keys"}, Verbs: []string{"*"}}}}},
		Bindings: []*sandboxv1.RoleBinding{
			bind("kim", "keyops", true, access.SubjectUser, "kim"),
			bind("team", access.Admin, false, access.SubjectTeam, "platform"), bind("key", access.Admin, false, access.SubjectKey, "deployer"),
			bind("red", "keyops", false, access.SubjectKey, "red"), bind("reds", access.Viewer, false, access.SubjectKey, "red"),
			bind("wide", access.Viewer, true, access.SubjectKey, "wide"), bind("narrow", access.Viewer, false, access.SubjectKey, "narrow"),
			bind("one", "keyops", false, access.SubjectKey, "one"), bind("top", "keyops", false, access.SubjectKey, "top"),
		},
	})
	must.Succeed(t, err)
	key := func(name, team, user string, roles ...string) *access.Identity {
		return &access.Identity{Kind: access.KindKey, Name: name, Key: name, Team: team, AllTeams: team == "", TenantUser: user,
			AllNamespaces: true, Roles: roles}
	}
	kim := &access.Identity{Kind: access.KindOIDC, Name: "kim", User: "kim", AllNamespaces: true}
	red, one, top := key("red", "red", ""), key("one", "", "u", access.Viewer), key("top", "red", "", access.Admin)
	reads := []string{"read"}
	for what, c := range map[string]struct {
		caller *access.Identity
		made   *sandboxv1.CreateKeyRequest
		want   problem.Reason
	}{
		"nothing is bound to it":          {kim, &sandboxv1.CreateKeyRequest{Name: "mine", Team: "search"}, ""},
		"a team that is bound":            {kim, &sandboxv1.CreateKeyRequest{Name: "mine", Team: "platform"}, problem.Forbidden},
		"a name that is bound":            {kim, &sandboxv1.CreateKeyRequest{Name: "deployer"}, problem.Forbidden},
		"as much as its maker's":          {red, &sandboxv1.CreateKeyRequest{Name: "narrow", Team: "red"}, ""},
		"all teams by a binding":          {red, &sandboxv1.CreateKeyRequest{Name: "wide", Team: "red"}, problem.Forbidden},
		"the whole hub, of a team's part": {top, &sandboxv1.CreateKeyRequest{Name: "deployer", Team: "red"}, problem.Forbidden},
		"the maker's user": {
			one, &sandboxv1.CreateKeyRequest{Name: "same", User: "u", AllTeams: true, AllNamespaces: true, Scopes: reads}, "",
		},
		"every user": {
			one, &sandboxv1.CreateKeyRequest{Name: "every", AllTeams: true, AllNamespaces: true, Scopes: reads}, problem.Forbidden,
		},
	} {
		_, err := KeysAPI{Service: s}.CreateKey(as(t, s, c.caller, sandboxv1.Keys_CreateKey_FullMethodName), c.made)
		if reasonOf(err) != c.want {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		if c.want == "" {
			_, err = KeysAPI{Service: s}.DeleteKey(t.Context(), &sandboxv1.DeleteKeyRequest{Name: c.made.GetName()})
			must.Succeed(t, err)
			continue
		}
		if _, err := (KeysAPI{Service: s}).CreateKey(t.Context(), c.made); err != nil {
			t.Errorf("%s: made without a caller: %v", what, err)
		}
		_, err = KeysAPI{Service: s}.RotateKey(as(t, s, c.caller, sandboxv1.Keys_RotateKey_FullMethodName),
			&sandboxv1.RotateKeyRequest{Name: c.made.GetName()})
		if reasonOf(err) != c.want {
			t.Errorf("%s: a new token: %v, want %q", what, err, c.want)
		}
		_, err = KeysAPI{Service: s}.DeleteKey(t.Context(), &sandboxv1.DeleteKeyRequest{Name: c.made.GetName()})
		must.Succeed(t, err)
	}
}

// away is an Authorizer that cannot be asked.
type away struct{}

func (away) Authorize(context.Context, *access.Identity, access.Permission) (access.Grant, error) {
	return access.Grant{}, problem.New(problem.Unavailable, "the API server does not respond")
}

// While another Authorizer is away, a caller gives keys and reads the policy as far as the policy permits. What goes beyond that is not
// refused, because the other one may permit it.
func TestAnotherAuthorizerIsAway(t *testing.T) {
	s, _ := replica(t, store.NewMemory(), nil)
	bind := func(user, role, namespace string, allTeams bool) *sandboxv1.RoleBinding {
		return &sandboxv1.RoleBinding{Name: user, Role: role, Namespaces: []string{namespace}, AllTeams: allTeams,
			Subjects: []*sandboxv1.Subject{{Kind: access.SubjectUser, Name: user}}}
	}
	_, err := AccessAPI{Service: s}.PutAccess(t.Context(), &sandboxv1.AccessPolicy{
		Roles: []*sandboxv1.Role{
			{Name: "keyops", Rules: []*sandboxv1.Rule{
				{Resources: []string{"keys"}, Verbs: []string{"*"}},
				{Resources: []string{"sandboxes", "envs", "templates", "clusters", "claims", "hub", "quotas"}, Verbs: []string{"get", "list", "watch"}},
			}},
			{Name: "reader", Rules: []*sandboxv1.Rule{{Resources: []string{"access"}, Verbs: []string{"get"}}}},
		},
		Bindings: []*sandboxv1.RoleBinding{
			bind("kim", "keyops", "*", true), bind("kit", "keyops", "*", false), bind("rob", "reader", "*", true), bind("ron", "reader", "n", true),
		},
	})
	must.Succeed(t, err)
	s.AskAlso(access.Either{s, away{}})
	give := func(name, scope string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := KeysAPI{Service: s}.CreateKey(ctx,
				&sandboxv1.CreateKeyRequest{Name: name, Scopes: []string{scope}, AllTeams: true, AllNamespaces: true})
			return err
		}
	}
	read := func(ctx context.Context) error {
		_, err := AccessAPI{Service: s}.CheckAccess(ctx, &sandboxv1.CheckAccessRequest{Resource: "sandboxes", Verb: "get", Who: true})
		return err
	}
	for what, c := range map[string]struct {
		user string
		call func(context.Context) error
		want problem.Reason
	}{
		"a key of what it has":           {"kim", give("one", "read"), ""},
		"a key of what it lacks":         {"kim", give("two", "claim"), problem.Unavailable},
		"a key for more teams":           {"kit", give("three", "read"), problem.Unavailable},
		"who-can, with the permission":   {"rob", read, ""},
		"who-can, in one namespace":      {"ron", read, problem.Unavailable},
		"who-can without the permission": {"kim", read, problem.Unavailable},
	} {
		who := &access.Identity{Kind: access.KindOIDC, Name: c.user, User: c.user, AllNamespaces: true}
		ctx := principal.With(t.Context(), principal.Of(who, access.Permission{}, access.Grant{}))
		if err := c.call(ctx); reasonOf(err) != c.want {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// A policy is replaced as a whole, by compare-and-swap, and never so that its caller is locked out by accident.
func TestPolicy(t *testing.T) {
	s, _ := replica(t, store.NewMemory(), nil)
	api := AccessAPI{Service: s}
	ann := &access.Identity{Kind: access.KindOIDC, Name: "ann", User: "ann", AllNamespaces: true}
	bind := func(role string) *sandboxv1.AccessPolicy {
		return &sandboxv1.AccessPolicy{Bindings: []*sandboxv1.RoleBinding{{Name: "b", Role: role, Namespaces: []string{"*"},
			Subjects: []*sandboxv1.Subject{{Kind: access.SubjectUser, Name: "ann"}}}}}
	}
	first, err := api.PutAccess(as(t, s, admin, sandboxv1.Access_PutAccess_FullMethodName), bind(access.Admin))
	must.Succeed(t, err)
	put := func(p *sandboxv1.AccessPolicy) error {
		_, err := api.PutAccess(as(t, s, ann, sandboxv1.Access_PutAccess_FullMethodName), p)
		return err
	}
	if err := put(bind(access.Viewer)); reasonOf(err) != problem.Forbidden {
		t.Errorf("a policy that locks its caller out: %v", err)
	}
	forced := bind(access.Viewer)
	forced.Force, forced.Revision = true, first.GetRevision()
	must.Succeed(t, put(forced))
	forced.Revision = first.GetRevision()
	if err := put(forced); reasonOf(err) != problem.Invalid {
		t.Errorf("a policy over one that was changed since: %v", err)
	}
	role := func(name, verb string) *sandboxv1.AccessPolicy {
		rule := &sandboxv1.Rule{Resources: []string{"*"}, Verbs: []string{verb}}
		return &sandboxv1.AccessPolicy{Roles: []*sandboxv1.Role{{Name: name, Rules: []*sandboxv1.Rule{rule}}}}
	}
	for field, p := range map[string]*sandboxv1.AccessPolicy{
		"roles[0].name":              role("viewer", "*"),
		"roles[0].rules[0].verbs[0]": role("r", "fly"),
		"bindings[0].role":           bind("gone"),
		"limits[0].team":             {Limits: []*sandboxv1.TeamLimits{{}}},
	} {
		err := put(p)
		var named bool
		if err != nil {
			for _, f := range problem.FromError(err).Fields {
				named = named || f.Field == field
			}
		}
		if !named {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
}

// The first key is made once, by one replica, and again when it has expired.
func TestBootstrap(t *testing.T) {
	shared := store.NewMemory()
	one, now := replica(t, shared, nil)
	token, err := one.Bootstrap(t.Context())
	must.Succeed(t, err)
	who, err := one.Authenticate(t.Context(), token)
	must.Succeed(t, err)
	if !who.Unbound() || access.NewPolicy(nil).Grant(who, access.Exec).Empty() {
		t.Errorf("the first key is %+v", who)
	}
	two, _ := replica(t, shared, nil)
	if again, err := two.Bootstrap(t.Context()); again != "" || err != nil {
		t.Errorf("another replica makes one as well: %t, %v", again != "", err)
	}
	now.Step(DefaultValidity)
	renewed, err := one.Bootstrap(t.Context())
	if must.Succeed(t, err); renewed == "" || renewed == token {
		t.Error("an expired one is not made anew")
	}
}

// Limits hold for a team and for a key, a retry of a claim key gets what it has, and what is not limited is not counted.
func TestLimits(t *testing.T) {
	live := 0
	held := sets.New[string]()
	s, now := replica(t, store.NewMemory(), func(o *Options) {
		o.Usage = Usage{
			Each: func(f func(*sandboxv1.Sandbox)) {
				for range live {
					f(&sandboxv1.Sandbox{Team: "red", Namespace: "n"})
				}
			},
			ClaimKeys: func(string) int { return held.Len() },
			Held:      func(_ context.Context, _, _, key string) bool { return held.Has(key) },
		}
	})
	_, err := AccessAPI{Service: s}.PutAccess(t.Context(), &sandboxv1.AccessPolicy{Limits: []*sandboxv1.TeamLimits{
		{Team: "red", Limits: &sandboxv1.KeyLimits{ClaimsPerSecond: 2, LiveSandboxes: 2, ClaimKeys: 2, Conversations: 1}},
		{Team: "blue"},
		{Team: "*", Limits: &sandboxv1.KeyLimits{ClaimsPerSecond: 0.5}},
	}})
	must.Succeed(t, err)
	claim := func(team, key string) (map[string]string, problem.Reason) {
		p := principal.Principal{Team: team, Namespaces: []string{"n"}}
		header, err := s.Claim(t.Context(), p, &sandboxv1.CreateSandboxRequest{Namespace: "n", ClaimKey: key})
		return header, reasonOf(err)
	}
	for i, want := range []problem.Reason{"", "", problem.RateLimited, problem.RateLimited} {
		header, got := claim("red", "")
		if got != want || header["RateLimit-Policy"] != `"team-claims";q=2;w=1` {
			t.Errorf("claim %d within a second: %q, %v", i, got, header)
		}
	}
	for range 10 {
		if header, got := claim("blue", ""); got != "" || header != nil {
			t.Errorf("a team without limits: %q, %v", got, header)
		}
	}
	if _, got := claim("green", ""); got != "" {
		t.Errorf("the first claim of another team: %q", got)
	}
	if header, got := claim("green", ""); got != problem.RateLimited || header["RateLimit"] != `"team-claims";r=0;t=2` {
		t.Errorf("the second claim of another team: %q, %v", got, header)
	}
	now.Step(500 * time.Millisecond)
	if _, got := claim("red", ""); got != problem.Quota {
		t.Errorf("the third sandbox, before any is listed: %q", got)
	}
	live = 2
	now.Step(5 * time.Second)
	if _, got := claim("red", "k"); got != problem.Quota {
		t.Errorf("the third sandbox: %q", got)
	}
	held.Insert("k", "l")
	if _, got := claim("red", "k"); got != "" {
		t.Errorf("a retry of a claim key: %q", got)
	}
	live = 0
	now.Step(5 * time.Second)
	if _, got := claim("red", "m"); got != problem.Quota {
		t.Errorf("one more claim key: %q", got)
	}
	header, leave, err := s.Converse(principal.Principal{Team: "red"})
	must.Succeed(t, err)
	want := map[string]string{"RateLimit-Policy": `"team-conversations";q=1`, "RateLimit": `"team-conversations";r=0`}
	if !maps.Equal(header, want) {
		t.Errorf("the header lines of a conversation are %v", header)
	}
	if header, _, err = s.Converse(principal.Principal{Team: "red"}); reasonOf(err) != problem.Quota || !maps.Equal(header, want) {
		t.Errorf("one more conversation: %v, %v", err, header)
	}
	leave()
	_, leave, err = s.Converse(principal.Principal{Team: "red"})
	must.Succeed(t, err)
	leave()
	if len(s.limiter.conversations) != 0 {
		t.Error("a team without conversations is remembered (I10)")
	}
}

// Replicas share a rate: together they admit no more than it.
func TestReplicasShareARate(t *testing.T) {
	for _, replicas := range []int{1, 2, 5} {
		admitted := 0
		for range replicas {
			part := share(20, replicas)
			b, now := newBucket(part, start), start
			for range 2000 { // two seconds, a claim each millisecond
				next, wait := b.take(part, now)
				if wait == 0 {
					admitted++
				}
				b, now = next, now.Add(time.Millisecond)
			}
		}
		if admitted < 40 || admitted > 60 {
			t.Errorf("%d replicas admit %d in 2 s, want 40, and the burst of a second", replicas, admitted)
		}
	}
	b := newBucket(1, start)
	b, _ = b.take(1, start)
	if _, wait := b.take(1, start.Add(-10*time.Minute)); wait != time.Second {
		t.Errorf("after the clock went back the next one is due in %s (I11)", wait)
	}
}
