// SPDX-License-Identifier: Apache-2.0

package kubeaccess_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/kubeaccess"
	"navix.sh/atoll/pkg/oidc"
	"navix.sh/atoll/pkg/problem"
)

var east = planetest.New("kubeaccess", plane.Options{}, nil)

func TestMain(m *testing.M) { east.Main(m) }

// world is a plane with the chart's roles, and a Cluster that asks it.
type world struct {
	*planetest.Place
	*kubeaccess.Cluster
	t             *testing.T
	client        kubernetes.Interface
	reviews, asks atomic.Int32 // TokenReviews and SubjectAccessReviews
}

// audience is what tokens are for.
const audience = "atoll"

func newWorld(t *testing.T, ttl time.Duration) *world {
	t.Helper()
	w := &world{Place: east.Place(t), t: t}
	w.client = kubernetes.NewForConfigOrDie(w.Config())
	_, err := w.Plane.Kubectl(t.Context(), "apply", "-f", filepath.Join("..", "..", "charts", "hub", "files", "rbac", "roles.yaml"))
	w.Must(err)
	config := w.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
				w.reviews.Add(1)
			case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
				w.asks.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	w.Cluster, err = kubeaccess.New(kubeaccess.Options{Config: config, Audiences: []string{audience}, TTL: ttl, Log: testlog.New(t)})
	w.Must(err)
	return w
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// account makes a ServiceAccount with a role of the chart, in its namespace or everywhere, and returns a token of it.
func (w *world) account(name, role string, everywhere bool) (token string) {
	w.t.Helper()
	ctx := w.t.Context()
	_, err := w.client.CoreV1().ServiceAccounts(w.Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	w.Must(err)
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: w.Namespace}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "atoll-" + role}
	meta := metav1.ObjectMeta{Name: w.Namespace + "-" + name}
	switch {
	case role == "":
	case everywhere:
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}
		_, err = w.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	default:
		binding := &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}
		_, err = w.client.RbacV1().RoleBindings(w.Namespace).Create(ctx, binding, metav1.CreateOptions{})
	}
	w.Must(err)
	return w.token(name, audience)
}

func (w *world) token(name, audience string) string {
	w.t.Helper()
	got, err := w.client.CoreV1().ServiceAccounts(w.Namespace).CreateToken(w.t.Context(), name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	w.Must(err)
	return got.Status.Token
}

func (w *world) identity(token string) *access.Identity {
	w.t.Helper()
	who, err := w.Authenticate(w.t.Context(), token)
	w.Must(err)
	return who
}

// holds reports whether a permission holds in a namespace, or with none about everything.
func (w *world) holds(who *access.Identity, p access.Permission, namespace string) bool {
	w.t.Helper()
	grant, err := w.Authorize(w.t.Context(), who, p)
	w.Must(err)
	reach, _ := access.ReachOf(p)
	from, err := grant.Holds(access.Query{Permission: p, Namespace: namespace}, reach)
	w.Must(err)
	return from != ""
}

// Every permission of the API times every role, by plain RBAC: everywhere, in one namespace, and outside of that.
func TestEveryPermissionOfEveryRole(t *testing.T) {
	w := newWorld(t, time.Minute)
	rows := 0
	for _, role := range access.BuiltIn() {
		name := role.GetName()
		everywhere := w.identity(w.account(name+"-everywhere", name, true))
		here := w.identity(w.account(name+"-here", name, false))
		for _, p := range access.Permissions() {
			rows++
			reach, _ := access.ReachOf(p)
			resource, _, _ := strings.Cut(p.Resource, "/")
			inNamespaces := reach != access.All && slices.Contains([]string{"sandboxes", "envs", "claims"}, resource)
			// Every caller may check its own access; that is not asked of RBAC.
			want := access.Permits(role, p) && (p.Verb != "check" || name == access.Admin)
			for _, tc := range []struct {
				where     string
				who       *access.Identity
				namespace string
				want      bool
			}{
				{"everywhere", everywhere, "", want},
				{"everywhere, in a namespace", everywhere, w.Namespace, want},
				{"here", here, w.Namespace, want && inNamespaces},
				{"not here", here, "default", false},
			} {
				if tc.namespace == "" && inNamespaces {
					continue // asked about namespaces
				}
				if got := w.holds(tc.who, p, tc.namespace); got != tc.want {
					t.Errorf("role %s %s: %s: got %v, want %v", name, tc.where, p, got, tc.want)
				}
			}
		}
	}
	if rows < 200 {
		t.Errorf("only %d rows", rows)
	}
	// Asked again, nothing is asked of the API server.
	asks, reviews := w.asks.Load(), w.reviews.Load()
	who := w.identity(w.token(access.Viewer+"-here", audience))
	w.holds(who, access.Exec, w.Namespace)
	before := w.asks.Load()
	for range 200 {
		w.holds(who, access.Exec, w.Namespace)
	}
	if n := w.asks.Load() - before; n != 0 {
		t.Errorf("200 times the same question made %d SubjectAccessReviews", n)
	}
	t.Logf("%d rows; %d TokenReviews, %d SubjectAccessReviews", rows, reviews, asks)
}

func TestIdentityOfATokenReview(t *testing.T) {
	w := newWorld(t, time.Minute)
	token := w.account("runner", "", false)
	who := w.identity(token)
	if want := "system:serviceaccount:" + w.Namespace + ":runner"; who.User != want || who.Kind != access.KindServiceAccount || who.UID == "" {
		t.Errorf("got %+v, want user %s", who, want)
	}
	for name, bad := range map[string]string{
		"of another service": w.token("runner", "vault"), "changed": token[:len(token)-8] + "AAAAAAAA", "invented": "e30.e30.e30", "short": "x",
	} {
		if _, err := w.Authenticate(t.Context(), bad); !errors.Is(err, access.ErrNotMine) {
			t.Errorf("a token %s: got %v", name, err)
		}
	}
	before := w.reviews.Load()
	for _, key := range []string{"", "atoll_abc", "e2b_abc"} {
		if _, err := w.Authenticate(t.Context(), key); !errors.Is(err, access.ErrNotMine) {
			t.Errorf("%q: got %v", key, err)
		}
	}
	if _, err := w.Authenticate(t.Context(), strings.Repeat("a", 17<<10)); problem.FromError(err).Reason != problem.Unauthenticated {
		t.Errorf("a token of 17 KiB: got %v", err)
	}
	if n := w.reviews.Load() - before; n != 0 {
		t.Errorf("API keys and long tokens were shown to the API server %d times", n)
	}
}

// 400 callers at once with one token and one question cost one request each; 1,000 invented tokens cost what the pace allows.
func TestI14RequestsAreBounded(t *testing.T) {
	w := newWorld(t, time.Minute)
	token := w.account("crowd", access.User, false)
	w.reviews.Store(0)
	each := func(n int, f func(i int)) {
		var group sync.WaitGroup
		for i := range n {
			group.Go(func() { f(i) })
		}
		group.Wait()
	}
	each(400, func(int) {
		who, err := w.Authenticate(t.Context(), token)
		if err != nil {
			t.Errorf("authenticating: %v", err)
			return
		}
		grant, err := w.Authorize(t.Context(), who, access.Permission{Resource: access.Sandboxes, Verb: "create"})
		if err != nil || grant.Ask == nil {
			t.Errorf("authorizing: %+v, %v", grant, err)
			return
		}
		if held, err := grant.Ask(w.Namespace); err != nil || !held {
			t.Errorf("asking about the namespace: %t, %v", held, err)
		}
	})
	if reviews, asks := w.reviews.Load(), w.asks.Load(); reviews != 1 || asks > 4 {
		t.Errorf("400 calls made %d TokenReviews and %d SubjectAccessReviews, want 1 and 2", reviews, asks)
	}
	w.reviews.Store(0)
	began := time.Now()
	each(1000, func(i int) {
		_, err := w.Authenticate(t.Context(), fmt.Sprintf("e30.e30.%d", i))
		if !errors.Is(err, access.ErrNotMine) && problem.FromError(err).Reason != problem.RateLimited {
			t.Errorf("an invented token: got %v", err)
		}
	})
	if n, most := w.reviews.Load(), int32(101+50*time.Since(began).Seconds()); n > most {
		t.Errorf("1000 invented tokens made %d TokenReviews, want at most %d", n, most)
	}
	if _, err := w.Authenticate(t.Context(), token); err != nil {
		t.Errorf("a caller that is known, during the flood: %v", err)
	}
}

func TestAChangeOfRBACIsNoticed(t *testing.T) {
	w := newWorld(t, 3*time.Second)
	who := w.identity(w.account("late", access.Developer, false))
	if !w.holds(who, access.Exec, w.Namespace) {
		t.Fatal("a developer may not exec")
	}
	w.Must(w.client.RbacV1().RoleBindings(w.Namespace).Delete(t.Context(), w.Namespace+"-late", metav1.DeleteOptions{}))
	wait.For(t, 20*time.Second, "the removed binding to be noticed", func(context.Context) error {
		return wait.If(!w.holds(who, access.Exec, w.Namespace), "still allowed")
	})
}

// While the API server is away what is cached holds, and the rest is UNAVAILABLE before long.
func TestI8AnAPIServerThatIsAway(t *testing.T) {
	w := newWorld(t, 10*time.Second)
	known, other := w.account("known", access.User, true), w.account("other", access.User, true)
	who := w.identity(known)
	create := access.Permission{Resource: access.Sandboxes, Verb: "create"}
	if !w.holds(who, create, "default") {
		t.Fatal("a user may not create")
	}
	one := w.identity(w.account("one", access.User, false)) // of one namespace: each is asked about
	grant, err := w.Authorize(t.Context(), one, create)
	w.Must(err)
	w.Must(w.Plane.Pause())
	resume := sync.OnceFunc(func() { w.Must(w.Plane.Resume()) })
	defer resume()
	if _, err := w.Authenticate(t.Context(), known); err != nil || !w.holds(who, create, "default") {
		t.Errorf("what is cached: %v", err)
	}
	for name, call := range map[string]func() error{
		"another token":      func() error { _, err := w.Authenticate(t.Context(), other); return err },
		"another permission": func() error { _, err := w.Authorize(t.Context(), who, access.Exec); return err },
		"another namespace":  func() error { _, err := grant.Ask(w.Namespace); return err },
	} {
		began := time.Now()
		if err := call(); err == nil || problem.FromError(err).Reason != problem.Unavailable {
			t.Errorf("%s: got %v, want UNAVAILABLE", name, err)
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("%s waited %s", name, took)
		}
	}
	wait.For(t, 30*time.Second, "what was cached to be forgotten", func(ctx context.Context) error {
		_, err := w.Authenticate(ctx, known)
		return wait.If(err != nil && problem.FromError(err).Reason == problem.Unavailable, err)
	})
	resume()
	wait.For(t, 30*time.Second, "the API server to be asked again", func(ctx context.Context) error {
		_, err := w.Authenticate(ctx, other)
		return err
	})
}

// ServiceAccount tokens by the cluster's issuer: its keys are fetched with a ServiceAccount's token; a call asks for nothing.
func TestServiceAccountTokensByTheirIssuer(t *testing.T) {
	w := newWorld(t, time.Minute)
	token := w.account("runner", "", false)
	dir := t.TempDir()
	config := w.Config()
	w.Must(os.WriteFile(filepath.Join(dir, "ca.crt"), config.CAData, 0o600))
	own, err := w.client.CoreV1().ServiceAccounts(w.Namespace).
		CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.Must(err)
	w.Must(os.WriteFile(filepath.Join(dir, "token"), []byte(own.Status.Token), 0o600))
	issuers, err := oidc.Parse(fmt.Appendf(nil, `
issuers:
- url: https://kubernetes.default.svc
  kubernetes: true
  audiences: [atoll]
  keysURL: %s/openid/v1/jwks
  caFile: %[2]s/ca.crt
  tokenFile: %[2]s/token
  teams: [{group: "system:serviceaccounts:%[3]s", team: red}]
`, config.Host, dir, w.Namespace))
	must.Succeed(t, err)
	a, err := oidc.New(issuers, clocktesting.NewFakeClock(time.Now()), testlog.New(t))
	must.Succeed(t, err)
	who, err := a.Authenticate(t.Context(), token)
	must.Succeed(t, err)
	if who.User != "system:serviceaccount:"+w.Namespace+":runner" || who.Team != "red" || who.Kind != access.KindServiceAccount {
		t.Errorf("got %+v", who)
	}
	if _, err := a.Authenticate(t.Context(), w.token("runner", "vault")); problem.FromError(err).Reason != problem.Unauthenticated {
		t.Errorf("a token for another service: got %v", err)
	}
}
