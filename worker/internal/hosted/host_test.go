// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/runner"
)

var east = planetest.New("east", plane.Options{}, func(ctx context.Context, p *plane.Plane) error {
	_, err := p.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join("..", "..", "..", "charts", "worker", "files", "rbac"))
	return err
})

func TestMain(m *testing.M) { east.Main(m) }

// workerConfig is of the cluster with the rights of a worker and no others.
func workerConfig(t *testing.T) *rest.Config {
	t.Helper()
	path, err := east.Up(t).ServiceAccountKubeconfig(t.Context(), "atoll-system", "atoll-worker")
	must.Succeed(t, err)
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	must.Succeed(t, err)
	return cfg
}

func admin(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(east.Up(t).Config(), client.Options{Scheme: planetest.Scheme(t)})
	must.Succeed(t, err)
	return c
}

func newHost(t *testing.T) *Host {
	t.Helper()
	var o runner.Options
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Bind(flags)
	must.Succeed(t, flags.Parse(nil))
	must.Succeed(t, o.ValidateHosting())
	h := New(Options{Worker: o, Self: "test", Clock: clock.RealClock{}, Log: testlog.New(t)})
	t.Cleanup(h.Close)
	return h
}

func newCluster(t *testing.T, cfg *rest.Config) cluster.Cluster {
	t.Helper()
	cl, err := cluster.New(cfg)
	must.Succeed(t, err)
	return cl
}

// engage fails if Engage does not return at once.
func engage(t *testing.T, h *Host, name string, cl cluster.Cluster) (end context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	began := time.Now()
	if err := h.Engage(ctx, multicluster.ClusterName(name), cl); err != nil {
		t.Errorf("Engage of %s returns %v", name, err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("Engage of %s took %s", name, took)
	}
	return cancel
}

// holder waits until the worker's Lease in the cluster has another holder than before, and returns it.
func holder(t *testing.T, c client.Client, before string) (now string) {
	t.Helper()
	planetest.Eventually(t, "a holder of the lease but "+before, func() error {
		now = ""
		lease := &coordinationv1.Lease{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "atoll-system", Name: "atoll-worker"}, lease); err != nil {
			return err
		}
		if h := lease.Spec.HolderIdentity; h != nil {
			now = *h
		}
		// One that is ended before it has heard of its lease does not release it. It has heard once it renews.
		if now != "" && !lease.Spec.RenewTime.After(lease.Spec.AcquireTime.Time) {
			return fmt.Errorf("%s has not renewed the lease", now)
		}
		return wait.If(now != before && (now != "" || before != ""), now)
	})
	return now
}

// blackhole is an API server that accepts connections and says nothing.
func blackhole(t *testing.T) *rest.Config {
	t.Helper()
	lis := testserver.Listen(t)
	var mu sync.Mutex
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = lis.Close()
		<-done
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	return &rest.Config{Host: "https://" + lis.Addr().String(), BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

const manifest = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxTemplate
metadata: {name: hosted}
spec:
  version: v1.0.0
  idleImage: test.local/idle:1
  template: {spec: {automountServiceAccountToken: false, containers: [{name: main, image: "test.local/python:3"}]}}
---
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: hosted, namespace: default}
spec:
  mode: WarmPool
  templateRef: {name: hosted}
  clusters:
  - clusterID: east
    members: [{name: hosted-east, spec: {replicas: 2}, config: {inlineResources: {requests: {cpu: 10m}}}}]
`

// TestI7EngageReturnsAtOnceAndTheOthersAreServed: clusters whose API server is silent, whose name is no cluster id, whose credentials are
// wrong, and whose id is taken, neither delay nor end the one that works; nor does their end.
func TestI7EngageReturnsAtOnceAndTheOthersAreServed(t *testing.T) {
	c := admin(t)
	h := newHost(t)
	wrong := rest.AnonymousClientConfig(workerConfig(t))
	wrong.BearerToken = "wrong"
	dead := engage(t, h, "dead", newCluster(t, blackhole(t)))
	unnamed := engage(t, h, "Not_A_Cluster", newCluster(t, workerConfig(t)))
	refused := engage(t, h, "refused", newCluster(t, wrong))
	end := engage(t, h, "east", newCluster(t, workerConfig(t)))
	leader := holder(t, c, "")

	_, err := east.Up(t).KubectlInput(t.Context(), strings.NewReader(manifest), "apply", "-f", "-")
	must.Succeed(t, err)
	planetest.Eventually(t, "two idle Pods of the hosted cluster", func() error {
		out, err := east.Up(t).Kubectl(t.Context(), "get", "sandboxpool", "hosted-east", "-o", "jsonpath={.status.idleReplicas}")
		if err != nil {
			return err
		}
		return wait.If(strings.TrimSpace(out) == "2", out)
	})
	families, err := h.Gather()
	must.Succeed(t, err)
	labelled := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "cluster" && strings.HasPrefix(f.GetName(), "atoll_") {
					labelled[l.GetValue()] = true
				}
			}
		}
	}
	if !labelled["east"] || labelled["Not_A_Cluster"] {
		t.Errorf("metrics are labelled with %v", labelled)
	}
	dead()
	unnamed()
	refused()
	if err := h.Engage(t.Context(), "east-again", newCluster(t, blackhole(t))); err != nil {
		t.Error(err)
	}
	planetest.Eventually(t, "the end of the broken ones", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		return wait.If(len(h.engaged) == 2, len(h.engaged))
	})
	lease := &coordinationv1.Lease{}
	must.Succeed(t, c.Get(t.Context(), client.ObjectKey{Namespace: "atoll-system", Name: "atoll-worker"}, lease))
	if got := *lease.Spec.HolderIdentity; got != leader {
		t.Errorf("the end of other clusters made %q the leader, want %q as before", got, leader)
	}
	end()
	if after := holder(t, c, leader); after != "" {
		t.Errorf("a cluster that was taken away is led by %q", after)
	}
}

// TestNewCredentialsStartANewWorker: the new worker starts after the old one, and the end of the old engagement's context, which comes
// late, does not end it.
func TestNewCredentialsStartANewWorker(t *testing.T) {
	c := admin(t)
	h := newHost(t)
	endFirst := engage(t, h, "east", newCluster(t, workerConfig(t)))
	first := holder(t, c, "")
	second := newCluster(t, workerConfig(t))
	end := engage(t, h, "east", second)
	again := first
	for again == first || again == "" {
		again = holder(t, c, again)
	}
	endFirst()
	engage(t, h, "east", second) // the same instance: nothing happens
	h.mu.Lock()
	e := h.engaged["east"]
	h.mu.Unlock()
	if e == nil || e.ctx.Err() != nil || e.cluster != second {
		t.Fatalf("the engagement with the new credentials is %v", e)
	}
	lease := &coordinationv1.Lease{}
	must.Succeed(t, c.Get(t.Context(), client.ObjectKey{Namespace: "atoll-system", Name: "atoll-worker"}, lease))
	if got := *lease.Spec.HolderIdentity; got != again {
		t.Errorf("the leader is %q, want %q", got, again)
	}
	end()
	holder(t, c, again)
}

// TestAClusterIDIsServedOnce: a second name with an id waits, and takes over when the first is gone.
func TestAClusterIDIsServedOnce(t *testing.T) {
	h := newHost(t)
	h.opts.Identify = func(context.Context, string) (string, error) { return "shared", nil }
	first := engage(t, h, "one", newCluster(t, blackhole(t)))
	owner := func(want string) {
		t.Helper()
		planetest.Eventually(t, want+" to have the id", func() error {
			h.mu.Lock()
			defer h.mu.Unlock()
			e := h.owners["shared"]
			return wait.If(e != nil && e.name.String() == want, e)
		})
	}
	owner("one")
	engage(t, h, "two", newCluster(t, blackhole(t)))
	if err := h.own("shared", &engagement{name: "three"}); err == nil || !strings.Contains(err.Error(), "by the name one") {
		t.Errorf("the id is given twice: %v", err)
	}
	first()
	owner("two")
}

var restingClusters = flag.Int("clusters", 10, "hosted clusters whose memory at rest is measured")

// TestMemoryOfAHostedCluster: at rest a hosted cluster costs at most 25 MB. Many names of one cluster are as many workers with caches, of
// which one leads.
func TestMemoryOfAHostedCluster(t *testing.T) {
	const limit = 25 << 20
	clusters := *restingClusters
	cfg := workerConfig(t)
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	h := newHost(t)
	before := inUse()
	for i := range clusters {
		engage(t, h, fmt.Sprintf("east-%d", i), newCluster(t, cfg))
	}
	holder(t, admin(t), "")
	planetest.Eventually(t, "all workers", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		return wait.If(len(h.gathered) == clusters, len(h.gathered))
	})
	// Caches fill in goroutines: at rest is when none has come for two seconds.
	most, since := 0, time.Now()
	planetest.Eventually(t, "rest", func() error {
		if n := runtime.NumGoroutine(); n > most {
			most, since = n, time.Now()
		}
		return wait.If(time.Since(since) > 2*time.Second, most)
	})
	each := (max(inUse(), before) - before) / uint64(clusters)
	t.Logf("%.1f MB a hosted cluster", float64(each)/(1<<20))
	if each > limit {
		t.Errorf("a hosted cluster uses %d bytes, want at most %d", each, limit)
	}
}

// engagements records calls of Engage.
type engagements struct {
	mu    sync.Mutex
	calls map[string][]context.Context
}

func (e *engagements) Engage(ctx context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.calls == nil {
		e.calls = map[string][]context.Context{}
	}
	e.calls[name.String()] = append(e.calls[name.String()], ctx)
	return nil
}

// state is, for each name, how many engagements there were, and whether the last one goes on.
func (e *engagements) state() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for name, calls := range e.calls {
		out = append(out, fmt.Sprintf("%s%d%t", name, len(calls), calls[len(calls)-1].Err() == nil))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func kubeconfigOf(server, user string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {%s}}]}`, server, user)
}

func TestFilesAreFollowed(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) { must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
	f := &Files{Dir: dir, Clock: clock.RealClock{}, Log: testlog.New(t)}
	host := &engagements{}
	scan := func(want, fault string) {
		t.Helper()
		err := f.scan(t.Context(), host)
		if (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("scan returns %v, want %q", err, fault)
		}
		if got := host.state(); got != want {
			t.Errorf("engaged %q, want %q", got, want)
		}
	}
	write("east.kubeconfig", kubeconfigOf("https://a", "token: a"))
	write("notes.txt", "no kubeconfig")
	scan("east1true", "")
	scan("east1true", "")
	write("west.kubeconfig", kubeconfigOf("https://b", "exec: {command: sh, apiVersion: client.authentication.k8s.io/v1}"))
	scan("east1true", "run programs")
	write("west.kubeconfig", kubeconfigOf("https://b", "tokenFile: /etc/passwd"))
	scan("east1true", "names a file")
	must.Succeed(t, os.Remove(filepath.Join(dir, "west.kubeconfig")))
	write("east.kubeconfig", "{")
	scan("east1true", "reading the kubeconfig")
	write("east.kubeconfig", kubeconfigOf("https://a", "token: b"))
	scan("east2true", "")
	f.Dir = filepath.Join(dir, "gone")
	scan("east2true", "--provider-dir")
	f.Dir = dir
	must.Succeed(t, os.Remove(filepath.Join(dir, "east.kubeconfig")))
	scan("east2false", "")
}

// TestSecretsAreFollowed: a cluster is engaged with its Secret, anew with other credentials, and ends with it; one that would run a
// program never is. Damage of its Secret leaves it as it was.
func TestSecretsAreFollowed(t *testing.T) {
	c := admin(t)
	ctx, cancel := context.WithCancel(t.Context())
	host := &engagements{}
	ended := make(chan error, 1)
	go func() { ended <- Kubeconfigs(ctx, east.Up(t).Config(), "atoll-system", host, testlog.New(t)) }()
	secret := func(name, user string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "atoll-system", Name: name, Labels: map[string]string{
				"sigs.k8s.io/multicluster-runtime-kubeconfig": "true", ClusterIDLabel: "labelled"}},
			StringData: map[string]string{"kubeconfig": kubeconfigOf("https://127.0.0.1:1", user)},
		}
	}
	state := func(want string) {
		t.Helper()
		planetest.Eventually(t, want, func() error { return wait.If(host.state() == want, host.state()) })
	}
	const program = "exec: {command: sh, interactiveMode: Never, apiVersion: client.authentication.k8s.io/v1}"
	must.Succeed(t, c.Create(ctx, secret("runs", program)))
	one := secret("one", "token: a")
	must.Succeed(t, c.Create(ctx, one))
	state("one1true")
	if id, err := LabelledID(c, corev1.SchemeGroupVersion.WithKind("Secret"), "atoll-system")(ctx, "one"); err != nil || id != "labelled" {
		t.Errorf("the cluster id is %q, %v", id, err)
	}
	one.StringData = secret("one", "token: b").StringData
	must.Succeed(t, c.Update(ctx, one))
	state("one2true")
	served := "one2true"
	for i, damage := range []string{"{", "", kubeconfigOf("https://127.0.0.1:1", program)} {
		one.StringData = map[string]string{"kubeconfig": damage}
		must.Succeed(t, c.Update(ctx, one))
		name := fmt.Sprint("z", i)
		must.Succeed(t, c.Create(ctx, secret(name, "token: a"))) // is taken after it
		served += " " + name + "1true"
		state(served)
	}
	one.StringData = secret("one", "token: c").StringData
	must.Succeed(t, c.Update(ctx, one))
	state("one3true z01true z11true z21true")
	for i := range 3 {
		must.Succeed(t, c.Delete(ctx, secret(fmt.Sprint("z", i), "")))
	}
	must.Succeed(t, c.Delete(ctx, one))
	state("one3false z01false z11false z21false")
	must.Succeed(t, c.Delete(ctx, secret("runs", "")))
	cancel()
	must.Succeed(t, <-ended)
}

func TestDecide(t *testing.T) {
	for name, tt := range map[string]struct{ self, wanted, holders, alive, take, drop string }{
		"alone":            {"a", "1 2 3", "", "a", "1 2 3", ""},
		"other providers":  {"a", "1 2 3", "3=x", "a", "1 2", ""},
		"half":             {"a", "1 2 3 4", "", "a b", "1 2", ""},
		"half, with one":   {"a", "1 2 3 4", "1=a", "a b", "2", ""},
		"the rest":         {"b", "1 2 3 4", "1=a 2=a", "a b", "3 4", ""},
		"another comes":    {"a", "1 2 3", "1=a 2=a 3=a", "a b", "", "3"},
		"even enough":      {"a", "1 2 3", "1=a 2=a 3=b", "a b", "", ""},
		"another is gone":  {"a", "1 2 3", "1=a 2=b 3=b", "a", "2 3", ""},
		"not wanted here":  {"a", "1", "2=a", "a", "1", ""},
		"held by the live": {"a", "1", "1=b", "a b", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := assignment{self: tt.self, wanted: strings.Fields(tt.wanted), holders: map[string]string{}, alive: map[string]bool{},
				apart: map[string]bool{"x": true}}
			for _, h := range strings.Fields(tt.holders) {
				id, who, _ := strings.Cut(h, "=")
				a.holders[id] = who
			}
			for _, r := range strings.Fields(tt.alive) {
				a.alive[r] = true
			}
			take, drop := decide(a)
			if got := strings.Join(take, " "); got != tt.take {
				t.Errorf("takes %q, want %q", got, tt.take)
			}
			if got := strings.Join(drop, " "); got != tt.drop {
				t.Errorf("gives up %q, want %q", got, tt.drop)
			}
		})
	}
}

// TestReplicasShareClusters: two replicas have half each, and the one that stays gets all when the other goes. One with another
// provider has no part of them.
func TestReplicasShareClusters(t *testing.T) {
	c := admin(t)
	log := testlog.New(t)
	ids := []string{"c1", "c2", "c3", "c4"}
	type replica struct {
		cancel context.CancelFunc
		wg     *sync.WaitGroup
		mu     *sync.Mutex
		runs   map[string]bool
	}
	start := func(name, provider string, ids ...string) replica {
		ctx, cancel := context.WithCancel(t.Context())
		r := replica{cancel, &sync.WaitGroup{}, &sync.Mutex{}, map[string]bool{}}
		s := NewShare(c, "atoll-system", name, provider, clock.RealClock{}, log)
		r.wg.Go(func() { _ = s.Run(ctx) })
		for _, id := range ids {
			r.wg.Go(func() {
				for ctx.Err() == nil {
					tenure, release, err := s.Hold(ctx, id)
					if err != nil {
						return
					}
					r.mu.Lock()
					r.runs[id] = true
					r.mu.Unlock()
					<-tenure.Done()
					r.mu.Lock()
					delete(r.runs, id)
					r.mu.Unlock()
					release()
				}
			})
		}
		return r
	}
	runs := func(r replica, want int) {
		t.Helper()
		planetest.Eventually(t, fmt.Sprintf("%d clusters of a replica", want), func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			return wait.If(len(r.runs) == want, r.runs)
		})
	}
	other := start("other", "cluster-api")
	one := start("one", "kubeconfig", ids...)
	runs(one, 4)
	other.cancel()
	other.wg.Wait()
	two := start("two", "kubeconfig", ids...)
	runs(two, 2)
	runs(one, 2)
	one.cancel()
	one.wg.Wait()
	runs(two, 4)
	two.cancel()
	two.wg.Wait()
}
