// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane/planetest"
)

// fixture is a Reconciler on an API server in memory. Its cache shows what the test puts there.
type fixture struct {
	*Reconciler
	client.Client
	pool  *v1alpha1.SandboxPool
	clock *testclock.FakePassiveClock
	seen  []corev1.Pod
	// listed is called between a list of Pods and its use.
	listed func()

	mu      sync.Mutex // writes come side by side
	created []string   // Pods, by name
	lost    int        // responses to creates that are lost
	deleted int
	patched []string
}

func newFixture(t *testing.T, replicas int32) *fixture {
	t.Helper()
	st := &fixture{pool: examplePool(), clock: testclock.NewFakePassiveClock(time.Now())}
	st.pool.Spec.Replicas = replicas
	st.Client = fake.NewClientBuilder().WithScheme(planetest.Scheme(t)).WithObjects(st.pool).WithStatusSubresource(st.pool).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				list.(*corev1.PodList).Items = st.seen
				if st.listed != nil {
					st.listed()
				}
				return nil
			},
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				st.mu.Lock()
				st.created = append(st.created, obj.GetName())
				isLost := st.lost > 0
				st.lost--
				st.mu.Unlock()
				if !isLost {
					return c.Create(ctx, obj, opts...)
				}
				copied, _ := obj.DeepCopyObject().(client.Object)
				return cmp.Or(c.Create(ctx, copied, opts...), context.DeadlineExceeded)
			},
			Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
				st.mu.Lock()
				defer st.mu.Unlock()
				st.deleted++
				return nil
			},
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
				if _, ok := obj.(*corev1.Pod); !ok {
					return c.Patch(ctx, obj, p, opts...)
				}
				body, err := p.Data(obj)
				st.mu.Lock()
				defer st.mu.Unlock()
				st.patched = append(st.patched, string(body))
				return err
			},
		}).Build()
	var err error
	st.Reconciler, err = New(Options{
		Client: st.Client, Recorder: &ledger{}, Events: events.NewFakeRecorder(100),
		Registry: prometheus.NewRegistry(), Clock: st.clock,
	})
	must.Succeed(t, err)
	return st
}

func (st *fixture) reconcile(t *testing.T) {
	t.Helper()
	_, err := st.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(st.pool)})
	must.Succeed(t, err)
}

// TestNothingIsDoneTwiceOnAnOldCache reconciles again and again while the cache
// shows none of what was written.
func TestNothingIsDoneTwiceOnAnOldCache(t *testing.T) {
	st := newFixture(t, 7)
	key := client.ObjectKeyFromObject(st.pool)
	st.reconcile(t)
	st.reconcile(t)
	if len(st.created) != 7 {
		t.Errorf("created %d Pods for 7 replicas", len(st.created))
	}

	// All but one arrive: still not settled.
	live := &corev1.PodList{}
	for _, name := range st.created {
		pod := corev1.Pod{}
		must.Succeed(t, st.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, &pod))
		pod.UID = types.UID(pod.Name)
		live.Items = append(live.Items, pod)
	}
	for _, pod := range live.Items[1:] {
		st.expectations.CreationSeen(key, pod.Name)
	}
	st.seen = live.Items[1:]
	st.reconcile(t)
	st.reconcile(t)
	if len(st.created) != 7 {
		t.Errorf("created %d Pods while the last one was on its way", len(st.created))
	}

	// A failed Pod is deleted once, even if the cache still shows it.
	st.expectations.CreationSeen(key, live.Items[0].Name)
	st.seen = live.Items
	st.seen[0].Labels[v1alpha1.SandboxPhaseLabelKey] = v1alpha1.SandboxPhaseFailed
	st.reconcile(t)
	st.reconcile(t)
	if st.deleted != 1 {
		t.Errorf("deleted %d times", st.deleted)
	}
}

// TestI9ALostResponseCreatesNoSecondPod: the create is repeated with the same name.
func TestI9ALostResponseCreatesNoSecondPod(t *testing.T) {
	st := newFixture(t, 1)
	st.lost = 1
	st.reconcile(t)
	st.reconcile(t)
	if len(st.created) != 2 || st.created[0] != st.created[1] {
		t.Errorf("created %q for one replica", st.created)
	}
}

// TestPodsOfAnEarlierPoolAreBuried: a pool was removed by force, and one of the same name was created.
func TestPodsOfAnEarlierPoolAreBuried(t *testing.T) {
	st := newFixture(t, 0)
	pod, now := newPod(st.pool, "r1", "old", ""), metav1.NewTime(st.clock.Now())
	pod.UID, pod.OwnerReferences[0].UID, pod.DeletionTimestamp = "old", "earlier", &now
	st.seen = []corev1.Pod{*pod}
	st.reconcile(t)
	if len(st.patched) != 1 || !strings.Contains(st.patched[0], "finalizers") {
		t.Errorf("patched %q, want the finalizer removed", st.patched)
	}
}

// TestAnEventWhilePodsAreListed: what the cache got since is not in the list, and must not count as if it were.
func TestAnEventWhilePodsAreListed(t *testing.T) {
	st := newFixture(t, 7)
	key := client.ObjectKeyFromObject(st.pool)
	st.reconcile(t)
	st.listed = func() {
		for _, name := range st.created {
			st.expectations.CreationSeen(key, name)
		}
		st.listed = nil
	}
	st.reconcile(t)
	if len(st.created) != 7 {
		t.Errorf("created %d Pods for 7 replicas", len(st.created))
	}
}

// TestWrongClocksEndNothing is I11: a Pod gets its full window and startup timeout, even if it says that they began long ago, or
// begin later.
func TestWrongClocksEndNothing(t *testing.T) {
	st := newFixture(t, 1)
	for name, began := range map[string]time.Time{"past": st.clock.Now().Add(-10 * time.Minute),
		"future": st.clock.Now().Add(10 * time.Minute)} {
		stamp := began.UTC().Format(time.RFC3339)
		idle := newPod(st.pool, "r1", "idle-"+name, "")
		idle.Annotations[v1alpha1.SandboxScaleDownProtectedAnnotationKey] = stamp
		starting := newPod(st.pool, "r1", "starting-"+name, "")
		starting.Labels[v1alpha1.SandboxPhaseLabelKey] = v1alpha1.SandboxPhaseStarting
		starting.Labels[v1alpha1.SandboxIDLabelKey] = "sb-" + name
		starting.Annotations[v1alpha1.SandboxClaimedAtAnnotationKey] = stamp
		starting.Annotations[v1alpha1.SandboxStartupTimeoutAnnotationKey] = "30"
		for _, pod := range []*corev1.Pod{idle, starting} {
			pod.UID = types.UID(pod.Name)
			st.seen = append(st.seen, *pod)
		}
	}
	wait := func(d time.Duration, deleted, patched int) {
		t.Helper()
		st.clock.SetTime(st.clock.Now().Add(d))
		st.reconcile(t)
		if st.deleted != deleted || len(st.patched) != patched {
			t.Errorf("deleted %d, want %d; patched %d, want %d: %s", st.deleted, deleted, len(st.patched), patched, st.patched)
		}
	}
	wait(0, 0, 0)
	wait(9*time.Second, 0, 0)
	wait(time.Second, 2, 0)
	wait(19*time.Second, 2, 0)
	wait(time.Second, 2, 2)
}
