// SPDX-License-Identifier: Apache-2.0

package claimtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/pool"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandbox/sandboxtest"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

const (
	// Patience is how long a test waits for something that should take a second or two.
	Patience = 60 * time.Second
	// ClusterID is the cluster of every world.
	ClusterID = "east"

	// PoolImage is the idle image of pools.
	PoolImage = "test.local/default:1"
	// TenantImage is the image that tenants ask for.
	TenantImage = "test.local/tenant:2"
	// TestImages are the images that claims may name.
	TestImages = "test.local/*"
)

// Plane is the plane of a test binary.
var Plane = planetest.New(ClusterID, plane.Options{Delays: plane.Delays{
	Start: 20 * time.Millisecond, StartMax: 50 * time.Millisecond, Pull: 200 * time.Millisecond,
}}, nil)

// World is a namespace of a real control plane with a running pool reconciler.
type World struct {
	*planetest.Place
	T        *testing.T
	recorder atomic.Pointer[Sandboxes]
}

// NewWorld returns a World. hooks, if any, run the post-start hooks of its pools.
func NewWorld(t *testing.T, hooks ...pool.Hooks) *World {
	t.Helper()
	w := &World{Place: Plane.Place(t), T: t}
	w.keepPools(hooks...)
	return w
}

// keepPools runs the pool reconciler until the test ends.
func (w *World) keepPools(hooks ...pool.Hooks) {
	w.T.Helper()
	mgr := w.Manager(w.Config(), sandboxcache.ByObject(), logr.Discard())
	w.Must(sandboxcache.AddIndexes(w.T.Context(), mgr.GetFieldIndexer()))
	options := pool.Options{
		Client: mgr.GetClient(), Recorder: w, Events: mgr.GetEventRecorder("pool"), ClusterID: ClusterID, Registry: prometheus.NewRegistry(),
	}
	for _, h := range hooks {
		options.Hooks = h
	}
	r, err := pool.New(options)
	w.Must(err)
	w.Must(r.SetupWithManager(w.T.Context(), mgr))
	w.Run("pool reconciler", mgr.Start)
}

// Ended passes records to the service that leads.
func (w *World) Ended(ctx context.Context, record *sandboxv1.Sandbox, of sandbox.Claim) error {
	if s := w.recorder.Load(); s != nil {
		return s.Ended(ctx, record, of)
	}
	return errors.New("no worker leads")
}

// Released asks the service that leads.
func (w *World) Released(pod types.UID) *sandbox.Termination {
	if s := w.recorder.Load(); s != nil {
		return s.Released(pod)
	}
	return nil
}

// Start returns a world with a pool, and a leader that sees its Pods idle.
func Start(t *testing.T, pods int32, change ...func(*v1alpha1.SandboxPool)) (*World, *Worker) {
	t.Helper()
	w := NewWorld(t)
	w.MakePool(pods, change...)
	l := w.Lead(1)
	l.AwaitIdle(pods)
	return w, l
}

// Start creates the pool, and returns a leader that sees its Pods idle. change is passed to Lead.
func (w *World) Start(pods int32, change ...func(*Options, *rest.Config)) *Worker {
	w.T.Helper()
	w.MakePool(pods)
	l := w.Lead(1, change...)
	l.AwaitIdle(pods)
	return l
}

// Until waits until as reports true for a sandbox.
func (l *Worker) Until(id, what string, as func(*sandboxv1.Sandbox) bool) {
	l.W.T.Helper()
	l.W.Eventually(what, func() error {
		got, err := l.Get(l.W.T.Context(), id)
		if err == nil && !as(got) {
			err = fmt.Errorf("it is %v", got)
		}
		return err
	})
}

// Ended is a condition for Until.
func Ended(got *sandboxv1.Sandbox) bool { return got.GetPhase() == sandboxv1.Phase_ENDED }

// MustRelease releases a sandbox, or the test ends.
func (l *Worker) MustRelease(id string) *sandboxv1.Sandbox {
	l.W.T.Helper()
	got, err := l.Release(l.W.T.Context(), id)
	l.W.Must(err)
	return got
}

// Metric returns the value of a counter, or the count of a histogram, with these labels.
func (l *Worker) Metric(name string, labels prometheus.Labels) (shown float64) {
	l.W.T.Helper()
	families, err := l.Metrics.Gather()
	l.W.Must(err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			has := prometheus.Labels{}
			for _, label := range m.GetLabel() {
				has[label.GetName()] = label.GetValue()
			}
			if family.GetName() == name && maps.Equal(has, labels) {
				shown = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return shown
}

// Worker is a running claim path. It leads after TakeOver.
type Worker struct {
	Path
	W       *World
	Lease   *Lease
	Metrics *prometheus.Registry
	// Blind stops its informers. Stop stops everything.
	Blind, Stop func()
	ended       chan error
}

// Lead starts a path and waits until it serves. change may set other options or another transport to the API server.
func (w *World) Lead(incarnation uint64, change ...func(*Options, *rest.Config)) *Worker {
	w.T.Helper()
	l := w.Follow(change...)
	l.TakeOver(incarnation)
	return l
}

// Follow returns a path that gets events and does not lead.
func (w *World) Follow(change ...func(*Options, *rest.Config)) *Worker {
	w.T.Helper()
	cfg := w.Config()
	l := &Worker{W: w, Lease: &Lease{}, Metrics: prometheus.NewRegistry()}
	l.Path = New(w.T, cfg, ClusterID, func(o *Options) {
		o.Inventory.Lease, o.Sandboxes.Metrics, o.Claims.Metrics = l.Lease, l.Metrics, l.Metrics
		o.Inventory.Namespaces = []string{w.Namespace} // worlds share a plane, and may exist at the same time
		for _, f := range change {
			f(o, cfg)
		}
	})
	informers, err := cache.New(w.Config(), cache.Options{
		Scheme: planetest.Scheme(w.T), ByObject: sandboxcache.ByObject(), DefaultNamespaces: map[string]cache.Config{w.Namespace: {}},
	})
	w.Must(err)
	w.Must(l.Watch(w.T.Context(), informers))
	l.Blind = w.Run("informers", informers.Start)
	return l
}

// TakeOver makes a path lead, and waits until it serves.
func (l *Worker) TakeOver(incarnation uint64) {
	l.W.T.Helper()
	l.SetIncarnation(incarnation)
	l.ended = make(chan error, 1)
	l.Stop = l.W.Run("claim path", func(ctx context.Context) error {
		err := l.Start(ctx)
		if errors.Is(err, inventory.ErrSetBack) {
			l.ended <- err
			return nil
		}
		return err
	})
	l.W.recorder.Store(l.Sandboxes)
	l.W.Eventually("the path to serve", func() error { return wait.If(l.Serving(), "not yet") })
}

// EndsWith stops the path, and expects the given error as the reason why it stopped serving.
func (l *Worker) EndsWith(want error) {
	l.W.T.Helper()
	l.Stop()
	select {
	case err := <-l.ended:
		if !errors.Is(err, want) {
			l.W.T.Errorf("it ended with %v, want %v", err, want)
		}
	default:
		l.W.T.Errorf("it ended without %v", want)
	}
}

// Request returns a claim of the pool's own image.
func (l *Worker) Request(change ...func(*claim.Claim)) claim.Claim {
	c := claim.Claim{
		Request: &sandboxv1.CreateSandboxRequest{Namespace: l.W.Namespace, Team: "red", User: "ann"},
		Pool:    l.W.Key("p"),
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

// Keyed returns a change that gives a request a key and an attempt.
func Keyed(key string, attempt int32) func(*claim.Claim) {
	return func(c *claim.Claim) {
		c.Request.ClaimKey, c.Attempt = key, attempt
		c.KeyHash = sandbox.KeyHash(c.Request.GetTeam(), c.Request.GetNamespace(), key)
	}
}

// NoQueue makes a request fail instead of waiting.
func NoQueue(c *claim.Claim) { c.Request.NoQueue = true }

// Image returns a change that sets a request's image.
func Image(ref string) func(*claim.Claim) {
	return func(c *claim.Claim) { c.Request.Image = ref }
}

// TryCreate claims a sandbox.
func (l *Worker) TryCreate(change ...func(*claim.Claim)) (*sandboxv1.Sandbox, error) {
	ctx, cancel := context.WithTimeout(l.W.T.Context(), Patience)
	defer cancel()
	return l.Create(ctx, l.Request(change...))
}

// Result is the result of a claim.
type Result struct {
	Got *sandboxv1.Sandbox
	Err error
}

// Begin claims a sandbox in the background, for a caller that leaves when ctx ends.
func (l *Worker) Begin(ctx context.Context, change ...func(*claim.Claim)) <-chan Result {
	result := make(chan Result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, Patience)
		defer cancel()
		got, err := l.Create(ctx, l.Request(change...))
		result <- Result{got, err}
	}()
	return result
}

// MustCreate claims a sandbox, or the test ends.
func (l *Worker) MustCreate(change ...func(*claim.Claim)) *sandboxv1.Sandbox {
	l.W.T.Helper()
	got, err := l.TryCreate(change...)
	l.W.Must(err)
	return got
}

// AwaitIdle waits until the pool is known and has n idle Pods.
func (l *Worker) AwaitIdle(n int32) {
	l.W.T.Helper()
	l.await("idle Pods", int(n), func() int {
		stats, ok := l.Stats(l.W.Key("p"))
		if !ok {
			return -1
		}
		return int(stats.ReadyIdle)
	})
}

// AwaitWaiting waits until n claims wait.
func (l *Worker) AwaitWaiting(n int32) {
	l.W.T.Helper()
	l.await("claims waiting", int(n), func() int { return int(l.Waiting(l.W.Key("p"))) })
}

// AwaitSandboxes waits until n sandboxes are on Pods of the world.
func (l *Worker) AwaitSandboxes(n int) {
	l.W.T.Helper()
	l.await("sandboxes", n, func() int { return len(l.Listed()) })
}

func (l *Worker) await(what string, want int, count func() int) {
	l.W.T.Helper()
	l.W.Eventually(fmt.Sprintf("%d %s", want, what), func() error {
		n := count()
		return wait.If(n == want, n)
	})
}

// Listed returns the sandboxes on Pods of the world.
func (l *Worker) Listed() []*sandboxv1.Sandbox {
	l.W.T.Helper()
	list, err := l.List(l.W.T.Context(), &sandboxv1.ListSandboxesRequest{Namespace: l.W.Namespace})
	l.W.Must(err)
	return list.GetSandboxes()
}

// MakePool creates the pool p, whose Pods run its default image and return to idle after a release.
func (w *World) MakePool(replicas int32, change ...func(*v1alpha1.SandboxPool)) {
	w.T.Helper()
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.Namespace, Name: "p", Annotations: map[string]string{v1alpha1.AllowedImagesAnnotationKey: TestImages},
	}}
	p.Spec.Replicas = replicas
	p.Spec.PodCreationImagePolicy = v1alpha1.PodCreationImagePolicyPoolDefaultImage
	p.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: PoolImage}}
	p.Spec.Template.Spec.AutomountServiceAccountToken = new(false)
	sandboxtest.Close(&p.Spec.Template.Spec)
	for _, c := range change {
		c(p)
	}
	w.Must(w.Live.Create(w.T.Context(), p))
}

// Scale changes the replicas of the pool.
func (w *World) Scale(replicas int32) {
	w.T.Helper()
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "p"}}
	body := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	w.Must(w.Live.Patch(w.T.Context(), p, client.RawPatch(types.MergePatchType, []byte(body))))
}

// Pods returns all Pods.
func (w *World) Pods() []corev1.Pod {
	w.T.Helper()
	list := &corev1.PodList{}
	w.Must(w.Live.List(w.T.Context(), list, client.InNamespace(w.Namespace)))
	return list.Items
}

// Pod returns one Pod.
func (w *World) Pod(name string) *corev1.Pod {
	w.T.Helper()
	pod := &corev1.Pod{}
	w.Must(w.Live.Get(w.T.Context(), w.Key(name), pod))
	return pod
}

// RemovePool deletes the pool.
func (w *World) RemovePool() {
	w.T.Helper()
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "p"}}
	w.Must(w.Live.Delete(w.T.Context(), p))
}

// KeyHash returns the hash of a key that Request uses.
func (w *World) KeyHash(key string) string { return sandbox.KeyHash("red", w.Namespace, key) }
