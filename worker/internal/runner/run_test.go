// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/monitoring"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/ports"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const manifest = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxTemplate
metadata: {name: python}
spec:
  version: v1.0.0
  idleImage: test.local/idle:1
  template: {spec: {automountServiceAccountToken: false, containers: [{name: main, image: "test.local/python:3"}]}}
---
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: python, namespace: default, annotations: {agentbox.navix.sh/allowed-images: test.local/other}}
spec:
  mode: WarmPool
  templateRef: {name: python}
  clusters:
  - clusterID: east
    members: [{name: python-east, spec: {replicas: 3}, config: {inlineResources: {requests: {cpu: 10m}}}}]
`

// TestWorkerAlone runs a whole worker whose hub is gone (I8), with the permissions of the chart and no others: an Env becomes
// Pods, a claim a sandbox, a release a warm Pod again, and at the end of the process the lease is free. Its metrics are compared
// with the dashboard and the alerts.
func TestWorkerAlone(t *testing.T) {
	recorder, registry := monitoring.NewRecorder(), metrics.Registry
	metrics.Registry = recorder
	defer func() { metrics.Registry = registry }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	set, err := plane.Up(ctx, plane.Options{AuditLog: true}, "east")
	must.Succeed(t, err)
	defer func() {
		if err := set.Down(ctx); err != nil {
			t.Error(err)
		}
	}()
	p := set.Plane("east")
	kubectl := func(stdin string, args ...string) string {
		t.Helper()
		out, err := p.KubectlInput(ctx, strings.NewReader(stdin), args...)
		must.Succeed(t, err)
		return out
	}
	kubectl("", "apply", "--server-side", "-f", filepath.Join("..", "..", "..", "charts", "worker", "files", "rbac"))
	kubeconfig, err := p.ServiceAccountKubeconfig(ctx, "atoll-system", "atoll-worker")
	must.Succeed(t, err)
	authority, err := pki.New(filepath.Join(t.TempDir(), "pki"))
	must.Succeed(t, err)
	files, err := authority.Cluster("east")
	must.Succeed(t, err)
	o := Options{
		hub: hubOptions{address: "127.0.0.1:1"}, certificate: identityOptions{files: files},
		clusterID: "east", kubeconfig: kubeconfig, namespace: "atoll-system",
		pools:   poolOptions{pullSecrets: true, queueCapacity: claim.DefaultQueueCapacity},
		history: historyOptions{dir: t.TempDir(), retention: history.DefaultRetention, records: history.DefaultMaxRecords},
		listen:  listenOptions{api: freeAddress(t), health: freeAddress(t), metrics: freeAddress(t)},
	}
	log := testlog.New(t)
	ctrl.SetLogger(log)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(running, o, log) }()
	defer stop()

	planetest.Eventually(t, "readiness", func() error { return get("http://" + o.listen.health + "/readyz") })
	kubectl(manifest, "apply", "-f", "-")
	conn, err := grpc.NewClient(o.listen.api, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	defer conn.Close()
	sandboxes := sandboxv1.NewSandboxesClient(conn)
	create := &sandboxv1.CreateSandboxRequest{Env: "python", Image: "test.local/other:1", Team: "team", ClaimKey: "once"}
	var first *sandboxv1.Sandbox
	planetest.Eventually(t, "a sandbox", func() error {
		first, err = sandboxes.CreateSandbox(ctx, create)
		return err
	})
	if first.GetPhase() != sandboxv1.Phase_RUNNING || first.GetImage() != "test.local/other:1" {
		t.Errorf("created %v", first)
	}
	again, err := sandboxes.CreateSandbox(ctx, create)
	if err != nil || again.GetId() != first.GetId() {
		t.Errorf("the same key answers %v, %v", again, err)
	}
	paused, err := sandboxes.PauseSandbox(ctx, &sandboxv1.PauseSandboxRequest{Id: first.GetId()})
	if err != nil || paused.GetPause().GetState() != sandboxv1.Pause_PAUSED {
		t.Errorf("paused: %v, %v", paused, err)
	}
	resumed, err := sandboxes.ResumeSandbox(ctx, &sandboxv1.ResumeSandboxRequest{Id: first.GetId()})
	if err != nil || resumed.GetPause() != nil {
		t.Errorf("resumed: %v, %v", resumed, err)
	}
	if _, err := sandboxes.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: first.GetId()}); err != nil {
		t.Error(err)
	}
	sendHostileText(ctx, sandboxes)
	planetest.Eventually(t, "three idle pods", func() error {
		out := kubectl("", "get", "sandboxpool", "python-east", "-o",
			"jsonpath={.status.phase} {.status.idleReplicas} {.status.unavailableIdleReplicas}")
		// A count that was never above zero is not written.
		got := strings.TrimSuffix(strings.TrimSpace(out), " 0")
		return wait.If(got == "Ready 3", out)
	})
	if err := get("http://" + o.listen.metrics + "/metrics"); err != nil {
		t.Error(err)
	}
	checkProbesAreBounded(t, "http://"+o.listen.metrics+"/metrics", "http://"+o.listen.health+"/livez")

	stop()
	if err := <-ended; err != nil {
		t.Errorf("the worker ended: %v", err)
	}
	checkLease(ctx, t, p)
	checkRights(t, p)
	checkMetrics(t, recorder)
	if err := recorder.CheckLabels(hostile); err != nil {
		t.Errorf("I14: %v", err)
	}
}

const hostile = "hostile-7f3a"

// sendHostileText puts a text wherever a caller can. Most calls are refused; what counts is what the metrics have of them (I14).
func sendHostileText(ctx context.Context, sandboxes sandboxv1.SandboxesClient) {
	for i := range 40 {
		text := fmt.Sprint(hostile, "-", i)
		for _, r := range []*sandboxv1.CreateSandboxRequest{
			{Env: text}, {Env: "python", Namespace: text}, {Env: "python", Team: text, User: text, Image: text, NoQueue: true},
			{Env: "python", InstanceType: text}, {Env: "python", ScalingGroup: text},
			{Env: "python", Clusters: []string{text}, RequireClusters: true},
			{Env: "python", Image: "test.local/other:1", Labels: map[string]string{text: text}, Metadata: map[string]string{text: text},
				NoQueue: true},
			{Env: "python", ClaimKey: text, Image: text},
		} {
			if s, err := sandboxes.CreateSandbox(ctx, r); err == nil {
				_, _ = sandboxes.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: s.GetId()})
			}
		}
		_, _ = sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: text})
		_, _ = sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{Env: text, PageToken: text})
	}
}

func checkLease(ctx context.Context, t *testing.T, p *plane.Plane) {
	t.Helper()
	client, err := kubernetes.NewForConfig(p.Config())
	must.Succeed(t, err)
	lease, err := client.CoordinationV1().Leases("atoll-system").Get(ctx, leaseName, metav1.GetOptions{})
	must.Succeed(t, err)
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		t.Errorf("the lease is still held by %s", *holder)
	}
	var left struct {
		Server time.Time
		Boot   string
	}
	if err := json.Unmarshal([]byte(lease.Annotations["agentbox.navix.sh/clocks"]), &left); err != nil {
		t.Errorf("what the lease leaves to the next leader: %v", err)
	} else if time.Since(left.Server).Abs() > time.Hour || left.Boot != apitime.BootID() {
		t.Errorf("the lease leaves %v to the next leader", left)
	}
}

// checkRights reads the audit log: nothing was forbidden, so the generated roles are sufficient.
func checkRights(t *testing.T, p *plane.Plane) {
	t.Helper()
	events, err := p.Audit()
	must.Succeed(t, err)
	for _, e := range events {
		if e.Code == http.StatusForbidden && strings.HasPrefix(e.User, "system:serviceaccount:atoll-system:") {
			t.Errorf("forbidden: %s %s %s/%s %s/%s", e.User, e.Verb, e.Resource, e.Subresource, e.Namespace, e.Name)
		}
	}
}

func get(url string) error {
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

func freeAddress(t *testing.T) string {
	t.Helper()
	addresses, err := ports.Free(1)
	must.Succeed(t, err)
	return addresses[0]
}

// checkProbesAreBounded asks for what metrics and health refuse (I14).
func checkProbesAreBounded(t *testing.T, urls ...string) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	for _, url := range urls {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		must.Succeed(t, err)
		req.Header.Set("Much", strings.Repeat("x", 64<<10))
		resp, err := client.Do(req)
		must.Succeed(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a header of 64 KiB at %s: %s", url, resp.Status)
		}
	}
}
