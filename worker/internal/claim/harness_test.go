// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/history/historytest"
	"navix.sh/atoll/worker/internal/pool"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandbox/sandboxtest"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

const (
	// patience is how long a test waits for what should take a second or two.
	patience  = 60 * time.Second
	clusterID = "east"

	poolImage   = "test.local/default:1"
	tenantImage = "test.local/tenant:2"
)

var east = planetest.New(clusterID, plane.Options{Delays: plane.Delays{
	Start: 20 * time.Millisecond, StartMax: 50 * time.Millisecond, Pull: 200 * time.Millisecond,
}}, nil)

func TestMain(m *testing.M) { east.Main(m) }

// world is a namespace of a real control plane with a pool reconciler at work in it.
type world struct {
	t         *testing.T
	scheme    *runtime.Scheme
	namespace string
	live      client.Client // of an administrator, without a cache
	ended     atomic.Pointer[claim.Service]
	hooks     pool.Hooks // of the pool reconciler; nil: none
}

func newWorld(t *testing.T, change ...func(*world)) *world {
	t.Helper()
	w := &world{t: t, scheme: runtime.NewScheme()}
	for _, f := range change {
		f(w)
	}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		w.must(add(w.scheme))
	}
	var err error
	w.live, err = client.New(w.config(), client.Options{Scheme: w.scheme})
	w.must(err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "claim-"}}
	w.must(w.live.Create(t.Context(), ns))
	w.namespace = ns.Name
	w.eventually("the default service account", func() error {
		return w.live.Get(t.Context(), w.key("default"), &corev1.ServiceAccount{})
	})
	w.keepPools()
	return w
}

func (w *world) config() *rest.Config {
	w.t.Helper()
	cfg := east.Up(w.t).Config()
	cfg.QPS = -1
	return cfg
}

// keepPools runs the pool reconciler until the test ends.
func (w *world) keepPools() {
	skip := true
	mgr, err := ctrl.NewManager(w.config(), ctrl.Options{
		Scheme: w.scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Cache:                  cache.Options{ByObject: sandboxcache.ByObject(), DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
		Controller:             config.Controller{SkipNameValidation: &skip},
	})
	w.must(err)
	w.must(sandboxcache.AddIndexes(w.t.Context(), mgr.GetFieldIndexer()))
	r, err := pool.New(pool.Options{
		Client: mgr.GetClient(), Recorder: w, Events: mgr.GetEventRecorder("pool"),
		ClusterID: clusterID, Registry: prometheus.NewRegistry(), Hooks: w.hooks,
	})
	w.must(err)
	w.must(r.SetupWithManager(w.t.Context(), mgr))
	w.inBackground("pool reconciler", mgr.Start)
}

// Ended hands records to the service that leads.
func (w *world) Ended(ctx context.Context, record *sandboxv1.Sandbox, keyHash string, attempt int32) error {
	if s := w.ended.Load(); s != nil {
		return s.Ended(ctx, record, keyHash, attempt)
	}
	return errors.New("nobody leads")
}

// inBackground runs something until the test ends, or until the returned function has stopped it.
func (w *world) inBackground(what string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("%s: %v", what, err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

// held is a lease that a test takes away.
type held struct{ lost atomic.Bool }

func (h *held) Held() bool { return !h.lost.Load() }

// leader is a claim service at work.
type leader struct {
	*claim.Service
	w       *world
	lease   *held
	metrics *prometheus.Registry
	// blind stops its informers, stop all of it.
	blind, stop func()
	ended       chan error
}

// lead starts a service and waits until it serves. change may set other options or another way to the API server.
func (w *world) lead(incarnation uint64, change ...func(*claim.Options, *rest.Config)) *leader {
	w.t.Helper()
	l := w.follow(change...)
	l.takeOver(incarnation)
	return l
}

// follow makes a service that hears of events and does not lead.
func (w *world) follow(change ...func(*claim.Options, *rest.Config)) *leader {
	w.t.Helper()
	cfg := w.config()
	times := apitime.New(clock.RealClock{})
	times.Watch(cfg)
	l := &leader{w: w, lease: &held{}, metrics: prometheus.NewRegistry()}
	opts := claim.Options{ClusterID: clusterID, Lease: l.lease, Time: times, Metrics: l.metrics}
	for _, f := range change {
		f(&opts, cfg)
	}
	var err error
	if opts.History == nil {
		opts.History = historytest.New(w.t, times)
	}
	opts.Pods, err = claim.NewPods(cfg)
	w.must(err)
	l.Service, err = claim.New(opts)
	w.must(err)
	informers, err := cache.New(w.config(), cache.Options{
		Scheme: w.scheme, ByObject: sandboxcache.ByObject(), DefaultNamespaces: map[string]cache.Config{w.namespace: {}},
	})
	w.must(err)
	w.must(l.Watch(w.t.Context(), informers))
	l.blind = w.inBackground("informers", informers.Start)
	return l
}

func (l *leader) takeOver(incarnation uint64) {
	l.w.t.Helper()
	l.SetIncarnation(incarnation)
	l.ended = make(chan error, 1)
	l.stop = l.w.inBackground("claim service", func(ctx context.Context) error {
		err := l.Start(ctx)
		if errors.Is(err, claim.ErrSetBack) {
			l.ended <- err
			return nil
		}
		return err
	})
	l.w.ended.Store(l.Service)
	l.w.eventually("the service to serve", func() error {
		if !l.Serving() {
			return errors.New("not yet")
		}
		return nil
	})
}

// endsWith stops the service, and wants it to say why it had stopped serving.
func (l *leader) endsWith(want error) {
	l.w.t.Helper()
	l.stop()
	select {
	case err := <-l.ended:
		if !errors.Is(err, want) {
			l.w.t.Errorf("it ended with %v, want %v", err, want)
		}
	default:
		l.w.t.Errorf("it ended without %v", want)
	}
}

func (l *leader) pool(name string) types.NamespacedName { return l.w.key(name) }

// request is a claim of a pool's own image.
func (l *leader) request(pool string, change ...func(*claim.Claim)) claim.Claim {
	c := claim.Claim{
		Request: &sandboxv1.CreateSandboxRequest{Namespace: l.w.namespace, Team: "red", User: "ann"},
		Pool:    l.pool(pool),
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func keyed(key string, attempt int32) func(*claim.Claim) {
	return func(c *claim.Claim) {
		c.Request.ClaimKey, c.Attempt = key, attempt
		c.KeyHash = sandbox.KeyHash(c.Request.GetTeam(), c.Request.GetNamespace(), key)
	}
}

func noQueue(c *claim.Claim) { c.Request.NoQueue = true }

func image(ref string) func(*claim.Claim) {
	return func(c *claim.Claim) { c.Request.Image = ref }
}

func (l *leader) create(change ...func(*claim.Claim)) (*sandboxv1.Sandbox, error) {
	ctx, cancel := context.WithTimeout(l.w.t.Context(), patience)
	defer cancel()
	return l.Create(ctx, l.request("p", change...))
}

func (l *leader) mustCreate(change ...func(*claim.Claim)) *sandboxv1.Sandbox {
	l.w.t.Helper()
	got, err := l.create(change...)
	l.w.must(err)
	return got
}

// awaitIdle waits until the service has so many Pods to hand out.
func (l *leader) awaitIdle(pool string, n int32) {
	l.w.t.Helper()
	l.w.eventually(fmt.Sprintf("%d idle Pods", n), func() error {
		if stats, _ := l.Stats(l.pool(pool)); stats.ReadyIdle != n {
			return fmt.Errorf("there are %d", stats.ReadyIdle)
		}
		return nil
	})
}

func (l *leader) awaitWaiting(pool string, n int32) {
	l.w.t.Helper()
	l.w.eventually(fmt.Sprintf("%d claims waiting", n), func() error {
		if stats, _ := l.Stats(l.pool(pool)); stats.Waiting != n {
			return fmt.Errorf("there are %d", stats.Waiting)
		}
		return nil
	})
}

func (w *world) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: name}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// eventually waits until there is no error.
func (w *world) eventually(what string, try func() error) {
	w.t.Helper()
	planetest.Eventually(w.t, what, try)
}

// makePool creates the pool p, whose Pods run its default image and return to idle after a release.
func (w *world) makePool(replicas int32, change ...func(*v1alpha1.SandboxPool)) {
	w.t.Helper()
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p"}}
	p.Spec.Replicas = replicas
	p.Spec.PodCreationImagePolicy = v1alpha1.PodCreationImagePolicyPoolDefaultImage
	p.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: poolImage}}
	p.Spec.Template.Spec.AutomountServiceAccountToken = new(false)
	sandboxtest.Close(&p.Spec.Template.Spec)
	for _, c := range change {
		c(p)
	}
	w.must(w.live.Create(w.t.Context(), p))
}

func (w *world) scale(replicas int32) {
	w.t.Helper()
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p"}}
	body := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	w.must(w.live.Patch(w.t.Context(), p, client.RawPatch(types.MergePatchType, []byte(body))))
}

func (w *world) pods() []corev1.Pod {
	w.t.Helper()
	list := &corev1.PodList{}
	w.must(w.live.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	return list.Items
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	w.must(w.live.Get(w.t.Context(), w.key(name), pod))
	return pod
}

func (w *world) removePool() {
	w.t.Helper()
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p"}}
	w.must(w.live.Delete(w.t.Context(), p))
}
