// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandbox/sandboxtest"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

// patience is how long a test waits for what should take a second or two.
const patience = 60 * time.Second

var plain = planetest.New("pool", plane.Options{Delays: plane.Delays{
	Start: 20 * time.Millisecond, StartMax: 50 * time.Millisecond, Pull: 1500 * time.Millisecond, Exit: time.Second,
}}, nil)

func TestMain(m *testing.M) { plain.Main(m) }

// ledger keeps records in memory, and refuses them while it is closed.
type ledger struct {
	mu      sync.Mutex
	closed  bool
	refused int
	records map[string]*sandboxv1.Sandbox
	times   map[string]int
}

func (l *ledger) Ended(_ context.Context, record *sandboxv1.Sandbox, _ sandbox.Claim) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		l.refused++
		return errors.New("the ledger is closed")
	}
	if l.records[record.Id] == nil {
		l.records[record.Id] = record
	}
	l.times[record.Id]++
	return nil
}

func (*ledger) Released(types.UID) *sandbox.Termination { return nil }

func (l *ledger) get(id string) *sandboxv1.Sandbox {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records[id]
}

func (l *ledger) setClosed(closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = closed
}

// lengths are the lengths of claim queues.
type lengths struct {
	mu      sync.Mutex
	waiting map[types.NamespacedName]int32
	tell    []func(types.NamespacedName)
}

func (l *lengths) Waiting(pool types.NamespacedName) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting[pool]
}

func (l *lengths) OnQueue(f func(types.NamespacedName)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell = append(l.tell, f)
}

func (l *lengths) set(pool types.NamespacedName, n int32) {
	l.mu.Lock()
	edge := (n == 0) != (l.waiting[pool] == 0)
	l.waiting[pool] = n
	tell := l.tell
	l.mu.Unlock()
	for _, f := range tell {
		if edge {
			f(pool)
		}
	}
}

// world is a namespace on a real control plane with a running Reconciler.
type world struct {
	*Reconciler
	*planetest.Place
	t       *testing.T
	ctx     context.Context
	ledger  *ledger
	lengths *lengths
	writes  *atomic.Int64 // requests by the Reconciler that change something
	network *podNetwork
	gate    *gate
	events  *tally
	stop    func() // ends the Reconciler; what runs on goes without it
	restart func() // starts another one
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{Place: plain.Place(t), t: t, ctx: ctx, ledger: &ledger{records: map[string]*sandboxv1.Sandbox{}, times: map[string]int{}},
		writes:  &atomic.Int64{},
		lengths: &lengths{waiting: map[types.NamespacedName]int32{}}, network: newPodNetwork(t), gate: &gate{},
		events: &tally{count: map[string]int{}}}
	cfg := w.Config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &writeCounter{next, w.writes} })
	w.restart = func() { w.start(cfg) }
	w.restart()
	t.Cleanup(func() { w.stop(); cancel() })
	return w
}

func (w *world) start(cfg *rest.Config) {
	t := w.t
	ctx := w.ctx
	mgr := w.Manager(cfg, sandboxcache.ByObject(), testlog.New(t))
	cluster, err := hooks.NewCluster(cfg)
	must.Succeed(t, err)
	runner, err := hooks.New(hooks.Options{Pods: cluster, Exec: cluster, Dial: w.network.dial, Log: mgr.GetLogger()})
	must.Succeed(t, err)
	must.Succeed(t, mgr.Add(runner))
	must.Succeed(t, sandboxcache.AddIndexes(ctx, mgr.GetFieldIndexer()))
	w.Reconciler, err = New(Options{
		Client: mgr.GetClient(), Recorder: w.ledger, Events: &countingRecorder{mgr.GetEventRecorder("pool"), w.events},
		ClusterID: "test", Registry: prometheus.NewRegistry(), Queues: w.lengths, Hooks: runner,
		Admission: admission.New(clock.RealClock{}, w.gate),
	})
	must.Succeed(t, err)
	must.Succeed(t, w.SetupWithManager(ctx, mgr))
	w.stop = w.Run("manager", mgr.Start)
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("cache did not sync")
	}
}

// writeCounter counts requests that change Pods or pools, but not events.
type writeCounter struct {
	next   http.RoundTripper
	writes *atomic.Int64
}

func (c *writeCounter) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet && !isEvent(req.URL.Path) {
		c.writes.Add(1)
	}
	return c.next.RoundTrip(req)
}

func isEvent(path string) bool { return len(path) > 24 && path[:24] == "/apis/events.k8s.io/v1/n" }

// newIdlePool is a world with the pool p, whose Pods are idle.
func newIdlePool(t *testing.T, replicas int32) (*world, []corev1.Pod) {
	t.Helper()
	w := newWorld(t)
	w.makePool("p", replicas)
	return w, w.awaitIdle("p", int(replicas), 0)
}

// newIdlePod is a world with a pool of one Pod.
func newIdlePod(t *testing.T) (*world, corev1.Pod) {
	t.Helper()
	w, pods := newIdlePool(t, 1)
	return w, pods[0]
}

// makePool creates a pool of Pods with one container; its idle image is idle:1.
func (w *world) makePool(name string, replicas int32, change ...func(*v1alpha1.SandboxPool)) *v1alpha1.SandboxPool {
	w.t.Helper()
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	pool.Spec.Replicas = replicas
	pool.Spec.IdleImage = "test.local/idle:1"
	pool.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "test.local/default:1"}}
	pool.Spec.Template.Spec.AutomountServiceAccountToken = new(false)
	sandboxtest.Close(&pool.Spec.Template.Spec)
	for _, c := range change {
		c(pool)
	}
	w.Must(w.Live.Create(w.ctx, pool))
	return pool
}

func (w *world) setReplicas(name string, replicas int32) {
	w.t.Helper()
	pool := w.Pool(name)
	body := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	w.Must(w.Live.Patch(w.ctx, pool, client.RawPatch(types.MergePatchType, []byte(body))))
}

// pods lists the pool's live Pods of a phase; "" is any.
func (w *world) pods(pool string, phase sandbox.Phase) []corev1.Pod {
	w.t.Helper()
	list := &corev1.PodList{}
	w.Must(w.Live.List(w.ctx, list, client.InNamespace(w.Namespace), client.MatchingLabels(sandbox.PoolLabels(pool))))
	var pods []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil && (phase == "" || sandbox.PhaseOf(&pod) == phase) {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	w.Must(w.Live.Get(w.ctx, w.Key(name), pod))
	return pod
}

// awaitIdle waits for so many ready idle Pods, and for no other Pods beside the given number.
func (w *world) awaitIdle(pool string, idle, others int) []corev1.Pod {
	w.t.Helper()
	var found []corev1.Pod
	w.Eventually(fmt.Sprintf("%d ready idle pods in %s", idle, pool), func() error {
		found = nil
		all := w.pods(pool, "")
		for _, pod := range all {
			if sandbox.PhaseOf(&pod) == sandbox.Idle && ready(&pod) {
				found = append(found, pod)
			}
		}
		return wait.If(len(found) == idle && len(all) == idle+others, fmt.Sprintf("%d ready and idle of %d", len(found), len(all)))
	})
	return found
}

// claim makes the claim write of package sandbox.
func (w *world) claim(pod *corev1.Pod, id, image string, startup time.Duration) error {
	body, _, err := sandbox.ClaimPatch(pod, &sandbox.Grant{
		Claim: sandbox.Claim{ID: id, Team: "team"}, Timeouts: sandbox.Timeouts{Startup: startup}, Image: image, Now: time.Now(),
	})
	if err != nil {
		return err
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	return w.Live.Patch(w.ctx, target, client.RawPatch(types.JSONPatchType, body))
}

func (w *world) release(pool, pod string) {
	w.t.Helper()
	w.Eventually("the release", func() error {
		current := w.pod(pod)
		body := sandbox.ReleasePatch(current, &w.Pool(pool).Spec,
			sandbox.End{StopReason: v1alpha1.SandboxStopReasonReleased}, time.Now())
		return w.Live.Patch(w.ctx, current, client.RawPatch(types.JSONPatchType, body))
	})
}

func (w *world) awaitPhase(pod string, phase sandbox.Phase) *corev1.Pod {
	w.t.Helper()
	var current *corev1.Pod
	w.Eventually("pod "+pod+" to be "+string(phase), func() error {
		current = w.pod(pod)
		got := sandbox.PhaseOf(current)
		return wait.If(got == phase, got)
	})
	return current
}

func (w *world) awaitRecord(id string, stop v1alpha1.SandboxStopReason, failure string) *sandboxv1.Sandbox {
	w.t.Helper()
	var record *sandboxv1.Sandbox
	w.Eventually("the record of "+id, func() error {
		record = w.ledger.get(id)
		return wait.If(record != nil, "none yet")
	})
	if record.StopReason != string(stop) || record.FailureReason != failure {
		w.t.Errorf("%s ended as %q %q (%s), want %q %q", id, record.StopReason, record.FailureReason, record.FailureMessage, stop, failure)
	}
	if record.TerminatedAt == nil || record.Phase != sandboxv1.Phase_ENDED {
		w.t.Errorf("%s has no end: %v", id, record)
	}
	return record
}

func (w *world) awaitGone(pod *corev1.Pod) {
	w.t.Helper()
	w.Eventually("pod "+pod.Name+" to go", func() error {
		current := &corev1.Pod{}
		err := w.Live.Get(w.ctx, client.ObjectKeyFromObject(pod), current)
		if apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID {
			return nil
		}
		return fmt.Errorf("it is there: %w", errors.Join(err, errors.New(string(sandbox.PhaseOf(current)))))
	})
}
