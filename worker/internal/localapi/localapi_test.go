// SPDX-License-Identifier: Apache-2.0

package localapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/agent"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/claim/claimtest"
	"navix.sh/atoll/worker/internal/localapi"
	"navix.sh/atoll/worker/internal/pool"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandboxcache"
	"navix.sh/atoll/worker/internal/sandboxes"
)

const clusterID = "east"

var east = planetest.New(clusterID, plane.Options{}, nil)

func TestMain(m *testing.M) {
	// lumberjack never ends the goroutine that compresses the audit's files.
	east.Main(m, goleak.IgnoreAnyFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// startOn runs a worker without Env reconciler and hub, and returns its local API's address. The Env demo has two pools: near with
// one Pod, and far, which comes second, with two.
func startOn(t *testing.T, on *plane.Plane, change func(*localapi.Options)) string {
	t.Helper()
	place := planetest.PlaceOn(t, on)
	cfg := place.Config()
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: place.Live.Scheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache:      cache.Options{ByObject: sandboxcache.ByObject()},
		Controller: config.Controller{SkipNameValidation: new(true)}, // there is a worker for each test
	})
	place.Must(err)
	place.Must(sandboxcache.AddIndexes(t.Context(), mgr.GetFieldIndexer()))
	claims := claimtest.New(t, cfg, clusterID, func(o *claimtest.Options) { o.Claims.QueueCapacity = 1 })
	place.Must(claims.Watch(t.Context(), mgr.GetCache()))
	claims.SetIncarnation(1)
	pools, err := pool.New(pool.Options{
		Client: mgr.GetClient(), Recorder: claims, Events: mgr.GetEventRecorder("pool"),
		ClusterID: clusterID, Registry: prometheus.NewRegistry(), Times: claims.Time(),
	})
	place.Must(err)
	place.Must(pools.SetupWithManager(t.Context(), mgr))
	options := localapi.Options{
		ClusterID: clusterID, Claims: claims, Sandboxes: claims.Sandboxes,
		Segments: agent.New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetCache(), agent.Options{
			ClusterID: clusterID, Services: agent.Services{Claims: claims, Sandboxes: claims.Sandboxes},
		}),
	}
	change(&options)
	api, err := localapi.New(options)
	place.Must(err)
	place.Must(mgr.Add(claims.Inventory))

	for name, replicas := range map[string]int32{"near": 1, "far": 2} {
		place.Must(place.Live.Create(t.Context(), newPool(name, replicas)))
	}
	place.Must(place.Live.Create(t.Context(), newEnv()))
	for _, name := range []string{"small-2", "small-4", "large-1"} {
		p := newPool(name, 0)
		p.Labels[v1alpha1.LabelEnv], p.Spec.Template.Labels[v1alpha1.LabelEnv] = "shapes", "shapes"
		place.Must(place.Live.Create(t.Context(), p))
	}
	place.Must(place.Live.Create(t.Context(), newShapes()))

	place.Run("manager", mgr.Start)
	return testserver.Serve(t, api.Serve)
}

func newPool(name string, replicas int32) *v1alpha1.SandboxPool {
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Labels: map[string]string{v1alpha1.LabelEnv: "demo"},
	}}
	p.Spec.Replicas = replicas
	p.Spec.PodCreationImagePolicy = v1alpha1.PodCreationImagePolicyPoolDefaultImage
	p.Spec.Runtimes = []v1alpha1.SandboxRuntimeSpec{{Name: "e2b", Port: new(int32(8080))}}
	p.Spec.Template.Labels = map[string]string{v1alpha1.LabelEnv: "demo"}
	p.Spec.Template.Spec = corev1.PodSpec{
		AutomountServiceAccountToken: new(false),
		Containers: []corev1.Container{{Name: "main", Image: "test.local/default:1", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
		}}},
	}
	return p
}

func newEnv() *v1alpha1.SandboxEnv {
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"}}
	env.Spec.TemplateRef.Name = "demo"
	env.Spec.Mode = v1alpha1.SandboxEnvModeWarmPool
	env.Spec.Clusters = []v1alpha1.EnvClusterSpec{{ClusterID: clusterID, Members: []v1alpha1.EnvClusterMember{
		{Name: "near", Config: v1alpha1.EnvClusterMemberConfig{Priority: 1}},
		{Name: "far", Config: v1alpha1.EnvClusterMemberConfig{Priority: 2}},
	}}}
	return env
}

// newShapes returns an Env whose claims get a small-2 unless they request something else.
func newShapes() *v1alpha1.SandboxEnv {
	env := newEnv()
	env.Name = "shapes"
	env.Spec.Defaults = &v1alpha1.SandboxEnvDefaults{InstanceType: "small", Multiplier: 2}
	env.Spec.Clusters[0].Members = []v1alpha1.EnvClusterMember{
		{Name: "large-1", Config: v1alpha1.EnvClusterMemberConfig{InstanceType: "large", Multiplier: 1, ScalingGroup: "large"}},
		{Name: "small-4", Config: v1alpha1.EnvClusterMemberConfig{InstanceType: "small", Multiplier: 4, ScalingGroup: "four"}},
		{Name: "small-2", Config: v1alpha1.EnvClusterMemberConfig{InstanceType: "small", Multiplier: 2, ScalingGroup: "two", Priority: 9}},
	}
	return env
}

// testShapes: a claim's shape and group choose the pool, and the Env's defaults are the shape of a claim that names none.
func testShapes(t *testing.T, envs sandboxv1.EnvsClient) {
	t.Helper()
	for want, requests := range map[string][]*sandboxv1.CreateSandboxRequest{
		"small-2": {{}, {InstanceType: "small", Multiplier: 2}, {ScalingGroup: "two"}},
		"small-4": {{Multiplier: 4}, {InstanceType: "small", ScalingGroup: "four"}},
		"large-1": {{InstanceType: "large"}, {InstanceType: "large", Multiplier: 1, ScalingGroup: "large"}},
		"":        {{InstanceType: "large", Multiplier: 2}, {ScalingGroup: "large"}, {InstanceType: "other"}},
	} {
		for _, request := range requests {
			got, err := envs.ExplainEnv(t.Context(), &sandboxv1.ExplainEnvRequest{Namespace: "default", Name: "shapes", Request: request})
			if err != nil || got.GetPool() != want {
				t.Errorf("%v goes to %q, want %q: %v, %v", request, got.GetPool(), want, got, err)
			}
		}
	}
}

// awaitIdle waits until the pools of Env demo have enough idle Pods.
func awaitIdle(t *testing.T, envs sandboxv1.EnvsClient, enough func(ready map[string]int32) bool) {
	t.Helper()
	planetest.Eventually(t, "idle Pods", func() error {
		env, err := envs.GetEnv(t.Context(), &sandboxv1.GetEnvRequest{Namespace: "default", Name: "demo"})
		if err != nil {
			return err
		}
		ready := map[string]int32{}
		for _, m := range env.GetClusters()[0].GetMembers() {
			ready[m.GetName()] = m.GetReadyIdle()
		}
		return wait.If(enough(ready), ready)
	})
}

// I8: all of this without a hub.
func TestI8LocalClaims(t *testing.T) {
	daemons := &sandboxesDaemons{unready: problem.New(problem.Misconfigured, "no key")}
	var worker localapi.Claims
	var logged journal
	address := startOn(t, east.Up(t), func(o *localapi.Options) {
		worker, o.Log = o.Claims, funcr.New(logged.add, funcr.Options{})
		daemons.prepared, o.Environment = o.Sandboxes.(*sandboxes.Service).Prepared, daemons
	})
	conn := testserver.Dial(t, address)
	sandboxes, envs := sandboxv1.NewSandboxesClient(conn), sandboxv1.NewEnvsClient(conn)
	claims := sandboxv1.NewClaimsClient(conn)
	ctx := t.Context()

	awaitIdle(t, envs, func(ready map[string]int32) bool { return ready["near"] == 1 && ready["far"] == 2 })
	explained, err := envs.ExplainEnv(ctx, &sandboxv1.ExplainEnvRequest{Namespace: "default", Name: "demo"})
	if err != nil || explained.GetPool() != "near" || len(explained.GetCandidates()) != 2 {
		t.Errorf("explain: %v, %v", explained, err)
	}

	testShapes(t, envs)

	first, err := sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: "demo"})
	if err != nil || first.GetPool() != "near" || first.GetDecision().GetPool() != "near" || first.GetPhase() != sandboxv1.Phase_RUNNING {
		t.Fatalf("first claim: %v, %v", first, err)
	}
	if r := first.GetRuntimes(); len(r) != 1 || r[0].GetPort() != 8080 || !strings.HasPrefix(r[0].GetUrl(), "tcp://") {
		t.Errorf("runtimes: %v", r)
	}
	keyed := &sandboxv1.CreateSandboxRequest{Env: "demo", ClaimKey: "a/b", Team: "red", NoQueue: true}
	second, err := sandboxes.CreateSandbox(ctx, keyed)
	if err != nil || second.GetPool() != "far" {
		t.Fatalf("second claim: %v, %v, want the other pool", second, err)
	}
	logged.want(t, `"msg"="Created a sandbox" "principal"="local" "team"="red"`,
		`"claimKeyHash"="`+sandbox.LocalKeyHash("red", "default", "a/b", clusterID)+`"`)
	_, err = sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: "demo", NoQueue: true})
	must.Succeed(t, err)
	_, err = sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: "demo", NoQueue: true})
	if problem.FromError(err).Reason != problem.NoCapacity {
		t.Errorf("fourth claim of three Pods: %v, want NO_CAPACITY", err)
	}
	_, err = sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: "demo", Team: "a\x00b", Image: "a b"})
	if e := problem.FromError(err); e.Reason != problem.Invalid || len(e.Fields) != 2 {
		t.Errorf("a bad request is answered %v, want INVALID with two fields, as at the hub", err)
	}
	if again, err := sandboxes.CreateSandbox(ctx, keyed); err != nil || again.GetId() != second.GetId() {
		t.Errorf("I2: the key answers %v, %v, want %s though nothing is idle", again, err, second.GetId())
	}
	if got, err := claims.GetClaim(ctx, &sandboxv1.GetClaimRequest{ClaimKey: "a/b", Team: "red"}); err != nil ||
		got.GetSandbox().GetId() != second.GetId() {
		t.Errorf("claim: %v, %v", got, err)
	}
	testRest(t, address, second.GetId())

	if _, err := sandboxes.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: first.GetId()}); err != nil {
		t.Error(err)
	}
	planetest.Eventually(t, "the first sandbox to end", func() error {
		got, err := sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: first.GetId()})
		return wait.If(err == nil && got.GetPhase() == sandboxv1.Phase_ENDED, fmt.Sprintf("%v, %v", got.GetPhase(), err))
	})
	canceled, err := claims.CancelClaim(ctx, &sandboxv1.CancelClaimRequest{ClaimKey: "a/b", Team: "red"})
	if err != nil || canceled.GetSandbox().GetId() != second.GetId() {
		t.Errorf("cancel: %v, %v", canceled, err)
	}
	testEnvironment(t, sandboxes, envs, daemons)
	testHubsKey(t, address, worker, sandboxes)
}

// journal is what the API has logged.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(_, line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// want wants a line with these parts.
func (j *journal) want(t *testing.T, parts ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.ContainsFunc(j.lines, func(line string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
	}) {
		t.Errorf("no line with %s: %q", parts, j.lines)
	}
}

// testHubsKey: a key that the hub has dispatched stands for the hub's sandbox here as well, while it waits, runs, and has ended.
func testHubsKey(t *testing.T, address string, worker localapi.Claims, sandboxes sandboxv1.SandboxesClient) {
	t.Helper()
	ctx := t.Context()
	dispatch := func(key, env, pool string) (*sandboxv1.Sandbox, error) {
		return worker.Create(ctx, claim.Claim{
			Request: &sandboxv1.CreateSandboxRequest{Namespace: "default", Env: env, Team: "red", ClaimKey: key},
			Pool:    types.NamespacedName{Namespace: "default", Name: pool}, KeyHash: sandbox.KeyHash("red", "default", key), Attempt: 1,
		})
	}
	tells := func(key string, parts ...string) {
		t.Helper()
		planetest.Eventually(t, key+" to be told", func() error {
			code, text := rest(t, address, "GET", "/v1/claims/"+key+"?team=red", "")
			missing := slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
			return wait.If(code == http.StatusOK && !missing, fmt.Sprintf("%d %s, want %s", code, text, parts))
		})
	}
	waits := make(chan error, 1)
	go func() {
		_, err := dispatch("waits", "shapes", "small-2")
		waits <- err
	}()
	tells("waits", `"state":"WAITING"`, `"position":1`, `"message":"the pool has no Pods"`)
	_, err := worker.Cancel(ctx, sandbox.KeyHash("red", "default", "waits"), 1)
	must.Succeed(t, err)
	if err := <-waits; err == nil {
		t.Error("a canceled claim has a sandbox")
	}

	all, err := sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{})
	must.Succeed(t, err)
	for _, s := range all.GetSandboxes() {
		_, err := sandboxes.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: s.GetId()})
		must.Succeed(t, err)
	}
	hubs, err := dispatch("hubs", "demo", "far")
	must.Succeed(t, err)
	request := &sandboxv1.CreateSandboxRequest{Env: "demo", Team: "red", ClaimKey: "hubs"}
	if got, err := sandboxes.CreateSandbox(ctx, request); err != nil || got.GetId() != hubs.GetId() {
		t.Errorf("running: the local API returns %v, %v, the hub %s", got, err, hubs.GetId())
	}
	tells("hubs", `"state":"RUNNING"`, hubs.GetId())
	_, err = sandboxes.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: hubs.GetId()})
	must.Succeed(t, err)
	tells("hubs", `"state":"ENDED"`, hubs.GetId(), `"message":"Released`)
	if got, err := sandboxes.CreateSandbox(ctx, request); err != nil || got.GetId() != hubs.GetId() {
		t.Errorf("ended: the local API returns %v, %v, the hub %s", got, err, hubs.GetId())
	}
}

func testRest(t *testing.T, address, id string) {
	t.Helper()
	for _, tc := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/v1/sandboxes/" + id, "", 200, `"phase":"RUNNING"`},
		{"GET", "/v1/sandboxes?team=red", "", 200, id},
		{"GET", "/v1/sandboxes?phase=ENDED&endedAfter=2026-01-01T00:00:00Z&pool=far", "", 200, `"sandboxes":[]`},
		{"GET", "/v1/sandboxes?stopReason=Tired", "", 400, `"field":"stopReason"`},
		{"GET", "/v1/sandboxes?endedAfter=yesterday", "", 400, "endedAfter"},
		{"GET", "/v1/claims/a%2Fb?team=red", "", 200, id},
		{"GET", "/v1/claims/a%2Fb?team=red", "", 200, `"state":"RUNNING"`},
		{"GET", "/v1/claims/none?team=red", "", 404, "NOT_FOUND"}, // as the cluster itself tells it, no state is UNKNOWN here
		{"GET", "/v1/envs", "", 200, `"name":"demo"`},
		{"GET", "/v1/envs?clusterId=east", "", 200, `"name":"demo"`},
		{"GET", "/v1/envs?clusterId=west", "", 404, "this worker serves east alone"},
		{"GET", "/v1/envs/default/none", "", 404, "demo"},
		{"POST", "/v1/sandboxes", `{"env":"none"}`, 404, "demo"},
		{"POST", "/v1/sandboxes", `{"claimKey":"\t"}`, 400, `"field":"claimKey"`},
		{"POST", "/v1/sandboxes", `{"env":"demo","postStartHooks":[{"exec":{}}]}`, 400, `"field":"postStartHooks[0].exec.command"`},
		{"POST", "/v1/sandboxes", `{"env":"demo","idleTimeout":"-5s"}`, 400, `"field":"idleTimeout","value":"-5s"`},
		{"POST", "/v1/sandboxes", `{"env":"demo","claimKey":"k","firstActivityTimeout":"5s"}`, 400, `"field":"firstActivityTimeout"`},
		{"PATCH", "/v1/sandboxes/" + id, `{"idleTimeout":"90s","maxLifetime":"3600s"}`, 200, `"idleTimeout":"90s"`},
		{"PATCH", "/v1/sandboxes/" + id, `{"maxLifetime":"0s"}`, 200, `"startupTimeout":"120s"`},
		{"PATCH", "/v1/sandboxes/" + id, `{}`, 400, `"field":"idleTimeout"`},
		{"POST", "/v1/sandboxes/" + id + ":touch", `{}`, 200, `"lastActiveAt":"20`},
		{"POST", "/v1/sandboxes/01x-east:touch", `{}`, 404, "no sandbox"},
		{"POST", "/v1/sandboxes", `{"env":"demo","clusters":["west"],"requireClusters":true}`, 422, "ClusterNotRequested"},
		{"POST", "/v1/sandboxes/" + id + ":pause", `{}`, 200, `"state":"PAUSED"`},
		{"GET", "/v1/sandboxes?team=red", "", 200, `"state":"PAUSED"`},
		{"POST", "/v1/sandboxes/" + id + ":resume", `{}`, 200, `"phase":"RUNNING"`},
		{"POST", "/v1/sandboxes/01x-east:resume", `{}`, 404, "no sandbox"},
		{"POST", "/v1/envs/default/demo:refresh", `{}`, 501, "refreshes no Envs"},
		{"GET", "/v1/clusters", "", 501, "hub"},
		{"GET", "/v1/sandboxes/01x-west", "", 404, "not of cluster east"},
	} {
		if code, text := rest(t, address, tc.method, tc.path, tc.body); code != tc.code || !strings.Contains(text, tc.want) {
			t.Errorf("%s %s %s: %d %s, want %d with %s", tc.method, tc.path, tc.body, code, text, tc.code, tc.want)
		}
	}
}

// rest makes one call, and returns its status and body.
func rest(t *testing.T, address, method, path, body string) (code int, text string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
	must.Succeed(t, err)
	resp, err := client.Do(req)
	must.Succeed(t, err)
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode, string(must.Read(t, resp.Body))
}
