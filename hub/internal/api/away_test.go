// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/hub/internal/authority"
	"navix.sh/atoll/hub/internal/grants"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
)

// perNamespace is an Authorizer that is asked about each namespace, and is away for all but one.
type perNamespace struct{}

func (perNamespace) Authorize(context.Context, *access.Identity, access.Permission) (access.Grant, error) {
	return access.Grant{Ask: func(namespace string) (bool, error) {
		if namespace == "known" {
			return true, nil
		}
		return false, problem.New(problem.Unavailable, "the API server does not respond").WithRetryAfter(time.Second)
	}}, nil
}

// While the Authorizer cannot be asked, what a caller may see is not known: it is neither refused nor told that something is missing.
func TestAnAuthorizerThatIsAwayRefusesNothing(t *testing.T) {
	token, path := keyFile(t, Key{Name: "ops", AllTeams: true, AllNamespaces: true, Scopes: []Scope{ScopeAdmin}})
	keys, err := NewKeyFile(path, clock.RealClock{}, testlog.New(t))
	must.Succeed(t, err)
	base := serveAPI(t, newFleet(t, "default/demo", "known/demo"), Options{
		Reach: quiet{},
		Auth:  NewAuth(AuthOptions{Keys: keys, Authorizer: perNamespace{}, Clock: clock.RealClock{}, Log: testlog.New(t)}),
	})
	for call, want := range map[string]int{
		"GET /v1/envs/default/demo":          http.StatusServiceUnavailable,
		"GET /v1/envs/default/gone":          http.StatusServiceUnavailable,
		"GET /v1/envs":                       http.StatusServiceUnavailable,
		"GET /v1/claims/k?namespace=default": http.StatusServiceUnavailable,
		"POST /v1/envs/default/demo:explain": http.StatusServiceUnavailable,
		"GET /v1/envs/known/demo":            http.StatusOK,
		"GET /v1/envs/known/gone":            http.StatusNotFound,
	} {
		method, path, _ := strings.Cut(call, " ")
		body := map[bool]string{true: "{}"}[method == "POST"]
		code, header, text := send(t, base, method, path, body, "Authorization", "Bearer "+token, "Content-Type", "application/json")
		if code != want || want == http.StatusServiceUnavailable && header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %v %s, want %d", call, code, header, text, want)
		}
	}
}

// While one of two Authorizers is away, what the other one permits is done and read, and nothing is FORBIDDEN or NOT_FOUND.
func TestWhatOthersPermitWhileAnAuthorizerIsAway(t *testing.T) {
	token, path := keyFile(t, Key{Name: "ops", Team: "red", Namespaces: []string{"known"}, Scopes: []Scope{ScopeRead}})
	keys, err := NewKeyFile(path, clock.RealClock{}, testlog.New(t))
	must.Succeed(t, err)
	policy := access.NewPolicy(&sandboxv1.AccessPolicy{
		Roles: []*sandboxv1.Role{{Name: "drainer", Rules: []*sandboxv1.Rule{{Resources: []string{"clusters"}, Verbs: []string{"*"}}}}},
		Bindings: []*sandboxv1.RoleBinding{{
			Name: "team", Role: "drainer", Namespaces: []string{"*"}, Clusters: []string{"east"},
			Subjects: []*sandboxv1.Subject{{Kind: access.SubjectUser, Name: "ann"}},
		}},
	})
	rbac := &clusterRBAC{}
	rbac.away.Store(true)
	auth := NewAuth(AuthOptions{
		Keys: keys, Authorizer: access.Either{policy, rbac}, Clock: clock.RealClock{}, Log: testlog.New(t),
		Others: []access.Authenticator{onlyAnn{}},
	})
	base := serveAPI(t, newFleet(t, "default/demo", "known/demo"), Options{Auth: auth})
	for _, c := range []struct {
		token, method, path string
		want                int
	}{
		{token, "GET", "/v1/envs/known/demo", http.StatusOK},
		{token, "GET", "/v1/envs/known/gone", http.StatusServiceUnavailable},
		{token, "GET", "/v1/envs/default/demo", http.StatusServiceUnavailable},
		{token, "GET", "/v1/envs?namespace=default", http.StatusServiceUnavailable},
		{"ann", "POST", "/v1/clusters/east:drain", http.StatusOK},
		{"ann", "POST", "/v1/clusters/west:drain", http.StatusServiceUnavailable},
	} {
		if code, text := visit(t, base, c.method, c.path, c.token); code != c.want {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, code, text, c.want)
		}
	}
	code, list := visit(t, base, http.MethodGet, "/v1/envs", token)
	if code != http.StatusOK || !strings.Contains(list, "known") || strings.Contains(list, "default") {
		t.Errorf("a list of what the other one permits: %d %s", code, list)
	}
}

// onlyAnn authenticates ann by her name.
type onlyAnn struct{}

func (onlyAnn) Authenticate(_ context.Context, token string) (*access.Identity, error) {
	if token != "ann" {
		return nil, access.ErrNotMine
	}
	return &access.Identity{Kind: access.KindOIDC, Name: "ann", User: "ann", AllNamespaces: true}, nil
}

// boundToCluster is the token of a new key that has a role on one cluster.
func boundToCluster(t *testing.T, policy *grants.Service, name, role, cluster string) (token string) {
	t.Helper()
	key, err := grants.KeysAPI{Service: policy}.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{Name: name, Team: "red"})
	must.Succeed(t, err)
	now, err := grants.AccessAPI{Service: policy}.GetAccess(t.Context(), &sandboxv1.GetAccessRequest{})
	must.Succeed(t, err)
	now.Bindings = append(now.Bindings, &sandboxv1.RoleBinding{
		Name: name, Role: role, Namespaces: []string{"*"}, Clusters: []string{cluster},
		Subjects: []*sandboxv1.Subject{{Kind: access.SubjectKey, Name: name}},
	})
	_, err = grants.AccessAPI{Service: policy}.PutAccess(t.Context(), now)
	must.Succeed(t, err)
	return key.GetToken()
}

// A caller that is bound to some clusters sees the parts of these in an Env, and no numbers of others.
func TestPartsOfOtherClustersAreNotShown(t *testing.T) {
	base, tokens, policy := governed(t)
	for name, cluster := range map[string]string{"in-east": "east", "in-west": "west"} {
		tokens[name] = boundToCluster(t, policy, name, access.Developer, cluster)
	}
	for _, c := range []struct{ method, path string }{
		{"GET", "/v1/envs/default/demo"}, {"GET", "/v1/envs"}, {"GET", "/v1/clusters"}, {"POST", "/v1/envs/default/demo:explain"},
		{"POST", "/v1/sandboxes"}, {"GET", "/v1/envs/default/gone"}, {"GET", "/v1/clusters/gone"}, {"GET", "/v1/sandboxes"},
	} {
		_, shown := visit(t, base, c.method, c.path, tokens["in-east"])
		code, hidden := visit(t, base, c.method, c.path, tokens["in-west"])
		if strings.Contains(hidden, "east") || strings.Contains(hidden, `"idle":2`) {
			t.Errorf("%s %s shows east to a caller of west: %d %s", c.method, c.path, code, hidden)
		}
		if c.method+c.path != "POST/v1/sandboxes" && !strings.Contains(c.path, "gone") && !strings.Contains(shown, "east") {
			t.Errorf("%s %s does not show east to its caller: %s", c.method, c.path, shown)
		}
	}
	// A cluster that is away, and that the caller may not see, is as one that is not there.
	for _, path := range []string{"/v1/sandboxes?clusterId=", "/v1/sandboxes/01hzzzzzzzzzzzzzzzzzzz0001-"} {
		code, away := visit(t, base, http.MethodGet, path+"east", tokens["in-west"])
		_, missing := visit(t, base, http.MethodGet, path+"gone", tokens["in-west"])
		if code != http.StatusNotFound || away != strings.ReplaceAll(missing, "gone", "east") {
			t.Errorf("%seast: %d %s, and of what is not there %s", path, code, away, missing)
		}
	}
}

// taken is a catalogue that has taken a change, and shows nothing itself.
type taken struct{ Catalog }

func (taken) PutEnv(context.Context, *sandboxv1.PutEnvRequest) error { return nil }

func (taken) FullEntry(context.Context, segment.Key) (*sandboxv1.CatalogEntry, error) {
	return nil, nil //nolint:nilnil // there is none
}

// asked is an authority that cluster east waits for.
type asked struct{ Authority }

func (asked) Approve(context.Context, string, string, bool) error { return authority.ErrNotWaiting }
func (asked) Waiting() []hubstate.Joiner                          { return []hubstate.Joiner{{ClusterID: "east"}} }

// recovering is a hub that waits for the claim keys of cluster east.
type recovering struct{ Hub }

func (recovering) Status() *sandboxv1.HubStatus {
	return &sandboxv1.HubStatus{AwaitedClusters: []string{"east"}}
}

// What a change returns, what it is refused with, and the hub's state name no cluster that the caller may not see.
func TestChangesTellNothingOfOtherClusters(t *testing.T) {
	f := newFleet(t, "default/demo")
	for _, cluster := range []string{"east", "west"} {
		ctx := principal.With(t.Context(), principal.Of(&access.Identity{}, access.Permission{}, access.Grant{Scopes: []access.Scope{
			{AllNamespaces: true, AllTeams: true, Clusters: []string{cluster}},
		}}))
		env, err := envs{fleet: f, catalog: taken{}}.PutEnv(ctx, &sandboxv1.PutEnvRequest{Namespace: "default", Name: "demo"})
		must.Succeed(t, err)
		status, err := (&hub{opts: recovering{}}).GetHub(ctx, &sandboxv1.GetHubRequest{})
		must.Succeed(t, err)
		_, refusal := clusters{fleet: f, authority: asked{}}.ApproveCluster(ctx, &sandboxv1.ApproveClusterRequest{Id: "west"})
		for what, text := range map[string]string{"an Env": env.String(), "the hub": status.String(), "a refusal": refusal.Error()} {
			if shown := strings.Contains(text, "east"); shown != (cluster == "east") {
				t.Errorf("%s tells a caller of %s: %s", what, cluster, text)
			}
		}
	}
}
