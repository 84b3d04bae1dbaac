// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/hub/internal/grants"
	"navix.sh/atoll/hub/internal/kubeproxy"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/mcpserver"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// permitted says which roles may call a method: v(iewer), u(ser), d(eveloper), e(nv-editor), o(perator), a(dmin).
var permitted = map[string]string{
	"Sandboxes.CreateSandbox": "uda", "Sandboxes.GetSandbox": "vudeoa", "Sandboxes.ListSandboxes": "vudeoa",
	"Sandboxes.WatchSandboxes": "vudeoa", "Sandboxes.ReleaseSandbox": "uda", "Sandboxes.UpdateSandbox": "uda",
	"Sandboxes.TouchSandbox": "uda", "Sandboxes.PauseSandbox": "uda", "Sandboxes.ResumeSandbox": "uda",
	"Claims.GetClaim": "vudeoa", "Claims.CancelClaim": "uda",
	"Envs.ListEnvs": "vudeoa", "Envs.GetEnv": "vudeoa", "Envs.ExplainEnv": "vudeoa", "Envs.PutEnv": "ea", "Envs.DeleteEnv": "ea",
	"Envs.PlanEnv": "eoa", "Envs.RefreshEnv": "eoa", "Envs.ListEnvRevisions": "vudeoa", "Envs.GetRollout": "vudeoa",
	"Envs.ControlRollout": "ea", "Envs.ImportEnv": "ea",
	"Templates.GetTemplate": "vudeoa", "Templates.PutTemplate": "ea", "Templates.DeleteTemplate": "ea",
	"Templates.ListTemplates": "vudeoa", "Templates.PlanTemplate": "ea", "Templates.ListTemplateRevisions": "vudeoa",
	"Clusters.ListClusters": "vudeoa", "Clusters.GetCluster": "vudeoa", "Clusters.DrainCluster": "oa", "Clusters.UndrainCluster": "oa",
	"Clusters.ForgetCluster": "oa", "Clusters.InviteCluster": "oa", "Clusters.ApproveCluster": "oa", "Clusters.RevokeCluster": "oa",
	"Clusters.UpdateCluster": "oa", "Pki.GetPki": "oa", "Pki.RotateCa": "oa",
	"Hub.GetHub": "vudeoa", "Hub.ListReplicas": "vudeoa", "Hub.AcceptLoss": "oa", "Hub.BackupHub": "a",
	"Keys.CreateKey": "a", "Keys.ListKeys": "a", "Keys.RotateKey": "a", "Keys.DeleteKey": "a",
	"Access.GetAccess": "a", "Access.PutAccess": "a", "Access.CheckAccess": "vudeoa", "Access.GetQuotas": "vudeoa",
}

// conversing is the same of the conversations, by their kind, with a path of each.
var conversing = map[string]struct{ path, roles string }{
	"logs":       {ofSandboxX + "logs", "uda"},
	"exec":       {ofSandboxX + "exec", "da"},
	"ports":      {ofSandboxX + "ports/80/", "da"},
	"files":      {ofSandboxX + "files?path=/x", "da"},
	"processes":  {ofSandboxX + "processes", "da"},
	"mcp":        {"/mcp", "uda"},
	"kubernetes": {"/v1/clusters/east/proxy/version", "a"},
}

const ofSandboxX = "/v1/sandboxes/01j9zq3p3k5m8x7c2v4b6n8d0f-east/"

var builtInRoles = map[string]string{
	"v": access.Viewer, "u": access.User, "d": access.Developer, "e": access.EnvEditor, "o": access.Operator, "a": access.Admin,
}

// governed is an API with grants, and a key bound to each role everywhere.
func governed(t *testing.T) (base string, tokens map[string]string, policy *grants.Service) {
	t.Helper()
	policy, err := grants.New(t.Context(), grants.Options{Store: openStore(t, "registry"), Clock: clock.RealClock{}, Log: testlog.New(t)})
	must.Succeed(t, err)
	auth := NewAuth(AuthOptions{
		Others: []access.Authenticator{policy}, Authorizer: policy, Changed: policy.Changed(), Converse: policy.Converse,
		Clock: clock.RealClock{}, Log: testlog.New(t),
	})
	measures, err := reach.NewMetrics(prometheus.NewRegistry(), "atoll_hub")
	must.Succeed(t, err)
	base = serveAPI(t, newFleet(t, "default/demo"), Options{
		Auth: auth, Limiter: policy,
		Keys: grants.KeysAPI{Service: policy}, Access: grants.AccessAPI{Service: policy},
		Reach: &visitors{}, Proxy: &kubeproxy.Options{Tunnels: unreached{}, Metrics: measures},
		MCP: mcpserver.NewHandler(mcpserver.HandlerOptions{MaxSessions: 1, MaxPerCaller: 1, Patience: time.Minute, Log: testlog.New(t)}),
	})
	tokens = map[string]string{}
	bindings := &sandboxv1.AccessPolicy{}
	for letter, role := range builtInRoles {
		key, err := grants.KeysAPI{Service: policy}.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{Name: role, AllTeams: true})
		must.Succeed(t, err)
		tokens[letter] = key.GetToken()
		bindings.Bindings = append(bindings.Bindings, &sandboxv1.RoleBinding{
			Name: role, Role: role, Namespaces: []string{"*"}, AllTeams: true, Subjects: []*sandboxv1.Subject{{Kind: "Key", Name: role}},
		})
	}
	_, err = grants.AccessAPI{Service: policy}.PutAccess(t.Context(), bindings)
	must.Succeed(t, err)
	return base, tokens, policy
}

// unreached has no tunnels.
type unreached struct{}

func (unreached) OpenTunnel(context.Context, string, reach.Holder, func(context.Context, string) error) (reach.Tunnel, error) {
	return nil, problem.New(problem.Unavailable, "no cluster")
}

// refused reports whether an error is that of a missing permission.
func refused(err error) bool {
	if err == nil {
		return false
	}
	p := problem.FromError(err)
	return p.Reason == problem.Forbidden && strings.Contains(p.Message, "lacks the permission to ")
}

// A role with ports alone does not reach the daemon's port, by which a caller runs commands and reads files.
func TestThePermissionOfPortsDoesNotReachTheDaemon(t *testing.T) {
	base, _, policy := governed(t)
	key, err := grants.KeysAPI{Service: policy}.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{Name: "caller", AllTeams: true})
	must.Succeed(t, err)
	_, err = grants.AccessAPI{Service: policy}.PutAccess(t.Context(), &sandboxv1.AccessPolicy{
		Roles: []*sandboxv1.Role{{Name: "ports", Rules: []*sandboxv1.Rule{
			{Resources: []string{access.Sandboxes}, Verbs: []string{"get"}}, {Resources: []string{access.SandboxesPort}, Verbs: []string{"create"}},
		}}},
		Bindings: []*sandboxv1.RoleBinding{{
			Name: "caller", Role: "ports", Namespaces: []string{"*"}, AllTeams: true,
			Subjects: []*sandboxv1.Subject{{Kind: access.SubjectKey, Name: "caller"}},
		}},
	})
	must.Succeed(t, err)
	for path, want := range map[string]int{
		"ports/80/": http.StatusNotFound, "ports/49983/init": http.StatusForbidden, "ports/049983/init": http.StatusForbidden,
		"ports/49983": http.StatusForbidden, "processes": http.StatusForbidden,
	} {
		code, text := visit(t, base, http.MethodGet, ofSandboxX+path, key.GetToken())
		if code != want || want == http.StatusForbidden && !strings.Contains(text, "create sandboxes/exec") {
			t.Errorf("%s: %d %s, want %d", path, code, text, want)
		}
	}
}

// Each method and each conversation permits exactly the roles of the table, over gRPC and over REST.
func TestEveryMethodAndRole(t *testing.T) {
	base, tokens, _ := governed(t)
	conn := testserver.Dial(t, strings.TrimPrefix(base, "http://"))
	paths := restPaths(t)
	left := map[string]bool{}
	for name := range permitted {
		left[name] = true
	}
	for full := range sandboxv1.MethodPermissions {
		service, method, _ := strings.Cut(strings.TrimPrefix(full, "/atoll.sandbox.v1."), "/")
		name := service + "." + method
		delete(left, name)
		roles, listed := permitted[name]
		if !listed {
			t.Errorf("%s is not in the table", name)
			continue
		}
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("atoll.sandbox.v1." + service + "." + method))
		must.Succeed(t, err)
		desc := found.(protoreflect.MethodDescriptor)
		for letter, token := range tokens {
			if name == "Access.PutAccess" && letter == "a" {
				continue // would take the roles away
			}
			may := strings.Contains(roles, letter)
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
			if err := call(ctx, conn, full, desc); refused(err) == may {
				t.Errorf("gRPC %s as %s: %v, want it permitted: %t", name, builtInRoles[letter], err, may)
			}
			path, ok := paths[name]
			if !ok {
				continue
			}
			code, text := visit(t, base, path[0], path[1], token)
			if (code == http.StatusForbidden && strings.Contains(text, "lacks the permission")) == may {
				t.Errorf("%s %s as %s: %d %s, want it permitted: %t", path[0], path[1], builtInRoles[letter], code, text, may)
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("the table has methods that there are not: %v", left)
	}
	everyConversation(t, base, tokens)
}

// everyConversation tries each kind of conversation as each role.
func everyConversation(t *testing.T, base string, tokens map[string]string) {
	t.Helper()
	kinds := access.Conversations()
	if len(kinds) != len(conversing) {
		t.Errorf("the table has %d kinds of conversations, and there are %v", len(conversing), kinds)
	}
	for _, kind := range kinds {
		try, listed := conversing[kind]
		if !listed {
			t.Errorf("conversations of the kind %s are not in the table", kind)
			continue
		}
		for letter, token := range tokens {
			may := strings.Contains(try.roles, letter)
			code, text := visit(t, base, http.MethodGet, try.path, token)
			denied := code == http.StatusForbidden && strings.Contains(text, "lacks the permission")
			if denied == may || code == http.StatusNotFound && strings.Contains(text, "no such path") {
				t.Errorf("%s as %s: %d %s, want it permitted: %t", kind, builtInRoles[letter], code, text, may)
			}
		}
	}
}

// call calls a method with an empty request, and of a stream reads the first message.
func call(ctx context.Context, conn *grpc.ClientConn, full string, desc protoreflect.MethodDescriptor) error {
	in, out := dynamicpb.NewMessage(desc.Input()), dynamicpb.NewMessage(desc.Output())
	if !desc.IsStreamingServer() {
		return conn.Invoke(ctx, full, proto.Message(in), out)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, full)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(in); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(out)
}

// restPaths returns method and path of the calls over REST, with x for each parameter.
func restPaths(t *testing.T) map[string][2]string {
	t.Helper()
	text, err := os.ReadFile("../../../api/sandbox/v1/sandbox_http.yaml")
	must.Succeed(t, err)
	var file struct {
		HTTP struct {
			Rules []map[string]string `json:"rules"`
		} `json:"http"`
	}
	must.Succeed(t, yaml.Unmarshal(text, &file))
	out := map[string][2]string{}
	for _, rule := range file.HTTP.Rules {
		for _, method := range []string{"get", "post", "put", "patch", "delete"} {
			path, ok := rule[method]
			if !ok {
				continue
			}
			for strings.Contains(path, "{") {
				before, rest, _ := strings.Cut(path, "{")
				_, after, _ := strings.Cut(rest, "}")
				path = before + "x" + after
			}
			out[strings.TrimPrefix(rule["selector"], "atoll.sandbox.v1.")] = [2]string{strings.ToUpper(method), path}
		}
	}
	if len(out) < 40 {
		t.Fatalf("found %d paths", len(out))
	}
	return out
}

func visit(t *testing.T, base, method, path, token string) (int, string) {
	t.Helper()
	body := ""
	if method != http.MethodGet && method != http.MethodDelete {
		body = "{}"
	}
	code, _, text := send(t, base, method, path, body, "Authorization", "Bearer "+token, "Content-Type", "application/json")
	return code, text
}

// A binding that names clusters permits what is about these, and nothing that is about the whole hub: over gRPC, over REST and as can-i
// and who-can have it.
func TestABindingForClustersIsNotForTheHub(t *testing.T) {
	base, tokens, policy := governed(t)
	token := boundToCluster(t, policy, "in-east", access.Admin, "east")
	conn := testserver.Dial(t, strings.TrimPrefix(base, "http://"))
	paths := restPaths(t)
	for full, needs := range sandboxv1.MethodPermissions {
		if needs.Reach != access.All || needs.Resource == access.Clusters {
			continue
		}
		service, method, _ := strings.Cut(strings.TrimPrefix(full, "/atoll.sandbox.v1."), "/")
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("atoll.sandbox.v1." + service + "." + method))
		must.Succeed(t, err)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		if err := call(ctx, conn, full, found.(protoreflect.MethodDescriptor)); err == nil || problem.FromError(err).Reason != problem.Forbidden {
			t.Errorf("gRPC %s: %v", full, err)
		}
		if path, ok := paths[service+"."+method]; ok {
			if code, text := visit(t, base, path[0], path[1], token); code != http.StatusForbidden {
				t.Errorf("%s %s: %d %s", path[0], path[1], code, text)
			}
		}
	}
	for call, may := range map[string]bool{
		"POST /v1/clusters/east:drain": true, "POST /v1/clusters/west:drain": false,
		"GET /v1/clusters/east/proxy/version": true, "GET /v1/clusters/west/proxy/version": false,
	} {
		method, path, _ := strings.Cut(call, " ")
		if code, text := visit(t, base, method, path, token); (code != http.StatusForbidden) != may {
			t.Errorf("%s: %d %s, want it permitted: %t", call, code, text, may)
		}
	}
	ask := func(token string, q *sandboxv1.CheckAccessRequest) *sandboxv1.CheckAccessResponse {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		out, err := sandboxv1.NewAccessClient(conn).CheckAccess(ctx, q)
		must.Succeed(t, err)
		return out
	}
	for _, c := range []struct {
		verb, resource string
		may            bool
	}{{"rotate", access.Pki, false}, {"backup", access.Hub, false}, {"update", access.Templates, false}, {"drain", access.Clusters, true}} {
		can := ask(token, &sandboxv1.CheckAccessRequest{Verb: c.verb, Resource: c.resource, Cluster: "east"})
		who := ask(tokens["a"], &sandboxv1.CheckAccessRequest{Verb: c.verb, Resource: c.resource, Cluster: "east", Who: true})
		named := strings.Contains(fmt.Sprint(who.GetSubjects()), "in-east")
		if can.GetAllowed() != c.may || named != c.may {
			t.Errorf("%s %s: can-i %t, who-can names it %t, want %t", c.verb, c.resource, can.GetAllowed(), named, c.may)
		}
	}
}

// A caller that may do something in one namespace learns nothing about others: what is there and what is not get the same words.
func TestDenialTellsNothing(t *testing.T) {
	base, _, policy := governed(t)
	key, err := grants.KeysAPI{Service: policy}.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{
		Name: "narrow", Team: "red", Namespaces: []string{"other"}, Scopes: []string{"admin"},
	})
	must.Succeed(t, err)
	for _, c := range []struct{ method, there, missing string }{
		{"GET", "/v1/envs/default/demo", "/v1/envs/default/gone"},
		{"POST", "/v1/envs/default/demo:explain", "/v1/envs/default/gone:explain"},
		{"POST", "/v1/clusters/east:drain", "/v1/clusters/gone:drain"},
		{"DELETE", "/v1/keys/viewer", "/v1/keys/gone"},
	} {
		there, text := visit(t, base, c.method, c.there, key.GetToken())
		missing, other := visit(t, base, c.method, c.missing, key.GetToken())
		if there != http.StatusForbidden || there != missing || strings.ReplaceAll(text, "demo", "gone") != other {
			t.Errorf("%s: %d %s, and of what is not there %d %s", c.there, there, text, missing, other)
		}
	}
}

// A limit is told in the headers of the standard, over REST and as metadata, whether the claim is admitted or not.
func TestLimitsAreTold(t *testing.T) {
	base, _, policy := governed(t)
	key, err := grants.KeysAPI{Service: policy}.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{
		Name: "slow", Team: "red", Namespaces: []string{"default"}, Scopes: []string{"claim"},
		Limits: &sandboxv1.KeyLimits{ClaimsPerSecond: 0.001},
	})
	must.Succeed(t, err)
	for i, want := range []int{0, http.StatusTooManyRequests} {
		code, header, text := send(t, base, http.MethodPost, "/v1/sandboxes", `{"env":"gone"}`,
			"Authorization", "Bearer "+key.GetToken(), "Content-Type", "application/json")
		if want != 0 && (code != want || header.Get("Retry-After") == "" || !strings.Contains(text, "RATE_LIMITED")) {
			t.Errorf("claim %d: %d %v %s", i, code, header, text)
		}
		if header.Get("RateLimit-Policy") != `"key-claims";q=1;w=1000` || !strings.HasPrefix(header.Get("RateLimit"), `"key-claims";r=0;t=`) {
			t.Errorf("claim %d: the headers are %v", i, header)
		}
	}
	conn := testserver.Dial(t, strings.TrimPrefix(base, "http://"))
	var header metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key.GetToken())
	_, err = sandboxv1.NewSandboxesClient(conn).CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: "gone"}, grpc.Header(&header))
	if problem.FromError(err).Reason != problem.RateLimited || fmt.Sprint(header.Get("ratelimit-policy")) != `["key-claims";q=1;w=1000]` {
		t.Errorf("over gRPC: %v, %v", err, header)
	}
}
