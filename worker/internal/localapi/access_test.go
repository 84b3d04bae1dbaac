// SPDX-License-Identifier: Apache-2.0

package localapi_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/metadata"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/kubeaccess"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/localapi"
)

// Callers show ServiceAccount tokens, and the cluster's RBAC says what they may do in which namespace; by gRPC, REST and conversations.
func TestCallersOfTheLocalAPIAreTheClusters(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	set, err := plane.Up(ctx, plane.Options{}, "gate")
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, set.Down(context.Background())) })
	on := set.Plane("gate")
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := on.Kubectl(ctx, args...)
		must.Succeed(t, err)
		return strings.TrimSpace(out)
	}
	cluster, err := kubeaccess.New(kubeaccess.Options{Config: on.Config(), Audiences: []string{"atoll"}, TTL: time.Minute,
		Log: testlog.New(t)})
	must.Succeed(t, err)
	written := filepath.Join(t.TempDir(), "audit.log")
	to := audit.Flags{To: []string{"file:" + written}, Megabytes: 4, Files: 1, Age: time.Hour}
	log, err := to.Open(ctx, audit.Environment{
		Replica: "gate", Clock: clock.RealClock{}, Metrics: prometheus.NewRegistry(), Prefix: "atoll_worker", Log: testlog.New(t),
	})
	must.Succeed(t, err)
	address := startOn(t, on, func(o *localapi.Options) { o.Gate, o.Audit = &localapi.Gate{Who: cluster, May: cluster}, log })
	kubectl("apply", "-f", filepath.Join("..", "..", "..", "charts", "hub", "files", "rbac", "roles.yaml"))
	tokens := map[string]string{"": ""}
	for _, account := range []string{"viewer", "user", "developer", "admin", "elsewhere"} {
		kubectl("create", "serviceaccount", account, "-n", "default")
		tokens[account] = kubectl("create", "token", account, "-n", "default", "--audience=atoll")
		switch account {
		case "admin":
			kubectl("create", "clusterrolebinding", account, "--clusterrole=atoll-admin", "--serviceaccount=default:"+account)
		case "elsewhere":
			kubectl("create", "rolebinding", account, "-n", "kube-public", "--clusterrole=atoll-developer", "--serviceaccount=default:"+account)
		default:
			kubectl("create", "rolebinding", account, "-n", "default", "--clusterrole=atoll-"+account, "--serviceaccount=default:"+account)
		}
	}
	conn := testserver.Dial(t, address)
	sandboxes := sandboxv1.NewSandboxesClient(conn)
	as := func(who string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+tokens[who])
	}
	var held *sandboxv1.Sandbox
	wait.For(t, time.Minute, "a sandbox", func(context.Context) error {
		held, err = sandboxes.CreateSandbox(as("user"), &sandboxv1.CreateSandboxRequest{Env: "demo",
			Wait: sandboxv1.CreateSandboxRequest_ASSIGNED})
		return err
	})
	for name, tc := range map[string]struct {
		want problem.Reason
		call func(ctx context.Context) error
		who  string
	}{
		"no token":         {problem.Unauthenticated, func(ctx context.Context) error { return get(ctx, sandboxes, held.GetId()) }, ""},
		"viewer gets":      {"", func(ctx context.Context) error { return get(ctx, sandboxes, held.GetId()) }, "viewer"},
		"elsewhere gets":   {problem.NotFound, func(ctx context.Context) error { return get(ctx, sandboxes, held.GetId()) }, "elsewhere"},
		"viewer releases":  {problem.Forbidden, func(ctx context.Context) error { return release(ctx, sandboxes, held.GetId()) }, "viewer"},
		"elsewhere, too":   {problem.NotFound, func(ctx context.Context) error { return release(ctx, sandboxes, held.GetId()) }, "elsewhere"},
		"viewer lists":     {"", func(ctx context.Context) error { return list(ctx, sandboxes, "default") }, "viewer"},
		"viewer lists all": {problem.Forbidden, func(ctx context.Context) error { return list(ctx, sandboxes, "") }, "viewer"},
		"admin lists all":  {"", func(ctx context.Context) error { return list(ctx, sandboxes, "") }, "admin"},
		"viewer creates":   {problem.Forbidden, func(ctx context.Context) error { return create(ctx, sandboxes) }, "viewer"},
		"elsewhere create": {problem.Forbidden, func(ctx context.Context) error { return create(ctx, sandboxes) }, "elsewhere"},
		"viewer watches":   {"", func(ctx context.Context) error { return watch(ctx, sandboxes, "default") }, "viewer"},
		"elsewhere watch":  {problem.Forbidden, func(ctx context.Context) error { return watch(ctx, sandboxes, "default") }, "elsewhere"},
	} {
		if err := tc.call(as(tc.who)); err == nil && tc.want != "" || err != nil && problem.FromError(err).Reason != tc.want {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	// What one may not see is not there, in the same words.
	unseen := get(as("elsewhere"), sandboxes, held.GetId())
	missing := get(as("elsewhere"), sandboxes, strings.Replace(held.GetId(), held.GetId()[:4], "zzzz", 1))
	if plain(unseen) != plain(missing) {
		t.Errorf("%q tells more than %q", unseen, missing)
	}
	checkEnvsOfOneNamespace(t, planetest.PlaceOn(t, on), sandboxv1.NewEnvsClient(conn), as)
	for _, tc := range []struct {
		who, path string
		want      int
	}{
		{"", "/v1/sandboxes?namespace=default", 401}, {"viewer", "/v1/sandboxes?namespace=default", 200},
		{"viewer", "/v1/sandboxes/" + held.GetId() + "/exec?command=true", 403}, {"user", "/v1/sandboxes/" + held.GetId() + "/exec?command=true",
			403},
		{"elsewhere", "/v1/sandboxes/" + held.GetId() + "/exec?command=true", 404}, {"viewer", "/v1/sandboxes/" + held.GetId() + "/logs", 403},
		{"elsewhere", "/v1/sandboxes/" + held.GetId() + "/ports/8080/", 404}, {"viewer", "/v1/clusters", 403},
	} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+tc.path, http.NoBody)
		must.Succeed(t, err)
		if tc.who != "" {
			request.Header.Set("Authorization", "Bearer "+tokens[tc.who])
		}
		response, err := http.DefaultClient.Do(request)
		must.Succeed(t, err)
		body := must.Read(t, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != tc.want {
			t.Errorf("%q: GET %s: %d %s, want %d", tc.who, tc.path, response.StatusCode, body, tc.want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	must.Succeed(t, log.Close())
	checkAudit(t, written, held.GetId())
}

// checkEnvsOfOneNamespace checks that a call without a namespace is about the default one: its caller may see no other.
func checkEnvsOfOneNamespace(t *testing.T, place *planetest.Place, envs sandboxv1.EnvsClient, as func(string) context.Context) {
	t.Helper()
	unseen := newEnv()
	unseen.Namespace, unseen.Name = "kube-public", "payroll"
	place.Must(place.Live.Create(t.Context(), unseen))
	wait.For(t, time.Minute, "the Env of another namespace", func(context.Context) error {
		_, err := envs.GetEnv(as("elsewhere"), &sandboxv1.GetEnvRequest{Namespace: unseen.Namespace, Name: unseen.Name})
		return err
	})
	for name, ask := range map[string]func(env string) error{
		"get": func(env string) error {
			_, err := envs.GetEnv(as("viewer"), &sandboxv1.GetEnvRequest{Name: env})
			return err
		},
		"explain": func(env string) error {
			_, err := envs.ExplainEnv(as("viewer"), &sandboxv1.ExplainEnvRequest{Name: env})
			return err
		},
	} {
		if err := ask("demo"); err != nil {
			t.Errorf("%s of an Env of the default namespace: %v", name, err)
		}
		err := ask("absent")
		if err == nil || problem.FromError(err).Reason != problem.NotFound || strings.Contains(err.Error(), unseen.Name) {
			t.Errorf("%s of an Env that does not exist: %v, want %q without names of other namespaces", name, err, problem.NotFound)
		}
	}
}

// checkAudit checks that the changes and refusals have lines, which name the ServiceAccount.
func checkAudit(t *testing.T, path, id string) {
	t.Helper()
	f, err := os.Open(path)
	must.Succeed(t, err)
	defer f.Close()
	seen := map[string]bool{}
	_, err = audit.Read(f, func(e audit.Event) error {
		seen[fmt.Sprint(e.Verb, " ", e.Who.Kind, " ", e.Who.Name, " ", e.Reason, " ", e.Object.Sandbox)] = true
		if e.From.Address == "" || e.Who.Proof == "" || e.Verb == "get" && e.Outcome == audit.OK {
			t.Errorf("a line is %+v", e)
		}
		return nil
	})
	must.Succeed(t, err)
	for _, want := range []string{
		"create serviceaccount system:serviceaccount:default:user  " + id,
		"release serviceaccount system:serviceaccount:default:viewer FORBIDDEN " + id,
		"exec serviceaccount system:serviceaccount:default:user FORBIDDEN " + id,
		"watch serviceaccount system:serviceaccount:default:elsewhere FORBIDDEN ",
	} {
		if !seen[want] {
			t.Errorf("the audit lacks %q: %v", want, seen)
		}
	}
}

func plain(err error) string {
	text := problem.FromError(err).Message
	if at := strings.Index(text, `"`); at >= 0 {
		text = text[:at]
	}
	return text
}

func get(ctx context.Context, c sandboxv1.SandboxesClient, id string) error {
	_, err := c.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: id})
	return err
}

func release(ctx context.Context, c sandboxv1.SandboxesClient, id string) error {
	_, err := c.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: id})
	return err
}

func list(ctx context.Context, c sandboxv1.SandboxesClient, namespace string) error {
	_, err := c.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{Namespace: namespace})
	return err
}

func create(ctx context.Context, c sandboxv1.SandboxesClient) error {
	_, err := c.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: "demo"})
	return err
}

func watch(ctx context.Context, c sandboxv1.SandboxesClient, namespace string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.WatchSandboxes(ctx, &sandboxv1.WatchSandboxesRequest{Namespace: namespace})
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}
