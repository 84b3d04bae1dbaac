// SPDX-License-Identifier: Apache-2.0

package podtunnel_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/claim/claimtest"
	"navix.sh/atoll/worker/internal/idle"
	"navix.sh/atoll/worker/internal/podtunnel"
	"navix.sh/atoll/worker/internal/pool"
	"navix.sh/atoll/worker/internal/sandbox/sandboxtest"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

const (
	patience  = 60 * time.Second
	clusterID = "east"
)

var east = planetest.New(clusterID, plane.Options{Delays: plane.Delays{
	Start: 20 * time.Millisecond, StartMax: 50 * time.Millisecond, Pull: 200 * time.Millisecond,
}}, nil)

func TestMain(m *testing.M) {
	// A connection that is closed twice stays for a second, to notify its peer.
	east.Main(m, goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}

// world is a pool on a real control plane with a claim service, and tunnels into its sandboxes.
type world struct {
	*planetest.Place
	t        *testing.T
	logFile  string // of the runtime "app"
	claims   claimtest.Path
	activity *podtunnel.Activity
	service  *podtunnel.Service
	metrics  *prometheus.Registry
	server   *httptest.Server
	lost     atomic.Bool  // the lease
	serving  atomic.Int32 // requests
}

func (w *world) Held() bool { return !w.lost.Load() }

// newWorld returns a world of two Pods. change may set another Upstream.
func newWorld(t *testing.T, change ...func(*podtunnel.Options)) *world {
	t.Helper()
	w := &world{t: t, Place: east.Place(t), metrics: prometheus.NewRegistry(), logFile: filepath.Join(t.TempDir(), "app.log")}
	mgr := w.Manager(w.Config(), nil, logr.Discard())
	w.Must(sandboxcache.AddIndexes(t.Context(), mgr.GetFieldIndexer()))
	w.lead()
	w.open(change...)
	pools, err := pool.New(pool.Options{
		Client: mgr.GetClient(), Recorder: w.claims, Events: mgr.GetEventRecorder("pool"), ClusterID: clusterID,
		Registry: prometheus.NewRegistry(),
	})
	w.Must(err)
	w.Must(pools.SetupWithManager(t.Context(), mgr))
	w.Must(w.claims.Watch(t.Context(), mgr.GetCache()))
	w.Run("manager", mgr.Start)
	w.Run("claims", w.claims.Start)
	w.Run("reach", w.service.Start)
	w.claims.SetIncarnation(1)
	w.makePool()
	return w
}

func (w *world) lead() {
	cfg := w.Config()
	w.activity = podtunnel.NewActivity(clock.RealClock{})
	w.claims = claimtest.New(w.t, cfg, clusterID, func(o *claimtest.Options) {
		o.Inventory.Lease, o.Sandboxes.Activity = w, []idle.LastActiveSource{w.activity}
	})
}

func (w *world) open(change ...func(*podtunnel.Options)) {
	upstream, err := podtunnel.NewAPIServer(w.Config())
	w.Must(err)
	opts := podtunnel.Options{Sandboxes: w.claims, Activity: w.activity, Lease: w, Upstream: upstream}
	for _, f := range change {
		f(&opts)
	}
	w.service, err = podtunnel.New(opts)
	w.Must(err)
	measures, err := reach.NewMetrics(w.metrics, "test")
	w.Must(err)
	handler := reach.NewHandler(measures.Measure(w.service), logr.Discard())
	server := httptest.NewServer(w.handlerOf(handler))
	w.server = server
	w.t.Cleanup(func() {
		handler.Close()
		server.Close()
	})
}

// bothWays runs a test against the leader, and against a follower.
func bothWays(t *testing.T, test func(*testing.T, *world)) {
	t.Run("leader", func(t *testing.T) { test(t, newWorld(t)) })
	t.Run("follower", func(t *testing.T) {
		w := newWorld(t)
		w.follow()
		test(t, w)
	})
}

// follow sends calls to a follower from now on.
func (w *world) follow() {
	authority, err := pki.New(filepath.Join(w.t.TempDir(), "pki"))
	w.Must(err)
	files, err := authority.Cluster(clusterID)
	w.Must(err)
	credentials, err := link.LoadCredentials(files, logr.Discard())
	w.Must(err)
	lis := testserver.Listen(w.t)
	leader := link.NewPeerServer(credentials, clusterID, logr.Discard())
	link.RegisterReach(leader, w.service)
	served := make(chan error, 1)
	go func() { served <- leader.Serve(lis) }()
	conn, err := link.DialPeer(lis.Addr().String(), clusterID, credentials)
	w.Must(err)
	handler := reach.NewHandler(through{conn}, logr.Discard())
	server := httptest.NewServer(w.handlerOf(handler))
	w.server = server
	w.t.Cleanup(func() {
		handler.Close()
		server.Close()
		w.Must(conn.Close())
		leader.Stop()
		w.Must(<-served)
	})
}

type through struct{ leader grpc.ClientConnInterface }

func (t through) Open(ctx context.Context, id string, what *federationv1.ReachCall) (reach.Tunnel, error) {
	return link.ReachThrough(ctx, t.leader, id, what)
}

// makePool creates the pool p, or one that change names.
func (w *world) makePool(change ...func(*v1alpha1.SandboxPool)) {
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "p"}}
	p.Spec.Replicas = 2
	p.Spec.IdleImage = "test.local/idle:1"
	p.Spec.Runtimes = []v1alpha1.SandboxRuntimeSpec{{Name: "app", LogDir: w.logFile}, {Name: "lost", LogDir: w.logFile + ".1"},
		{Name: "quiet"}}
	p.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "test.local/default:1"}}
	p.Spec.Template.Spec.AutomountServiceAccountToken = new(false)
	sandboxtest.Close(&p.Spec.Template.Spec)
	for _, f := range change {
		f(p)
	}
	w.Must(w.Live.Create(w.t.Context(), p))
}

// claim returns a running sandbox of the pool p.
func (w *world) claim(change ...func(*sandboxv1.CreateSandboxRequest)) *sandboxv1.Sandbox {
	w.t.Helper()
	return w.claimOf("p", change...)
}

func (w *world) claimOf(pool string, change ...func(*sandboxv1.CreateSandboxRequest)) *sandboxv1.Sandbox {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	r := &sandboxv1.CreateSandboxRequest{Namespace: w.Namespace, Team: "red", User: "ann"}
	for _, f := range change {
		f(r)
	}
	var got *sandboxv1.Sandbox
	w.Eventually("a sandbox", func() (err error) {
		got, err = w.claims.Create(ctx, claim.Claim{Request: r, Pool: w.Key(pool)})
		return err
	})
	if got.GetPhase() != sandboxv1.Phase_RUNNING {
		w.t.Fatalf("the sandbox is %s", got.GetPhase())
	}
	return got
}

func (w *world) release(id string) {
	w.t.Helper()
	_, err := w.claims.Release(w.t.Context(), id)
	w.Must(err)
}

// tunnels expects so many open tunnels.
func (w *world) tunnels(n int) {
	w.t.Helper()
	w.Eventually(fmt.Sprintf("%d open tunnels", n), func() error {
		got := w.service.Tunnels()
		return wait.If(got == n, got)
	})
}
