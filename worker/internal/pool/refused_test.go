// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/admission"
)

// gate is an admission plugin that admits Pods until a test says otherwise.
type gate struct {
	mu     sync.Mutex
	asked  int
	answer func(*admission.PodRequest) (admission.Verdict, error)
}

func (g *gate) Name() string { return "gate" }

func (g *gate) PreCreatePod(_ context.Context, r *admission.PodRequest) (admission.Verdict, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	if g.answer == nil {
		return admission.Admit(1), nil
	}
	return g.answer(r)
}

func (g *gate) set(answer func(*admission.PodRequest) (admission.Verdict, error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = answer
}

// tally counts Events by reason, before they are merged.
type tally struct {
	mu    sync.Mutex
	count map[string]int
}

func (y *tally) of(reason string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.count[reason]
}

type countingRecorder struct {
	events.EventRecorder
	tally *tally
}

func (r *countingRecorder) Eventf(about, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.tally.mu.Lock()
	r.tally.count[reason]++
	r.tally.mu.Unlock()
	r.EventRecorder.Eventf(about, related, kind, reason, action, note, args...)
}

// scalingSays waits until the condition Scaling contains a text, or no longer does.
func (w *world) scalingSays(pool, text string, present bool) {
	w.t.Helper()
	w.Eventually("the condition Scaling", func() error {
		c := meta.FindStatusCondition(w.Pool(pool).Status.Conditions, v1alpha1.SandboxPoolConditionScaling)
		return wait.If(c != nil && strings.Contains(c.Message, text) == present, c)
	})
}

func (w *world) failures() float64 {
	return testutil.ToFloat64(w.metrics.actions.WithLabelValues("Create", string(scaleUp), outcomeError))
}

// TestResourceQuota: a pool takes what its namespace has room for, reports what it waits for, retries rarely, and continues on
// its own once there is room.
func TestResourceQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "three"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}
	w.Must(w.Live.Create(w.ctx, quota))
	w.Eventually("the quota to be counted", func() error {
		w.Must(w.Live.Get(w.ctx, w.Key("three"), quota))
		return wait.If(len(quota.Status.Hard) != 0, "not yet")
	})
	w.makePool("p", 8)
	w.awaitIdle("p", 3, 0)
	w.scalingSays("p", "exceeded quota: three", true)
	last, ok := w.opts.Refusals.Last(w.Key("p"))
	if !ok || last.Reason != admission.QuotaExceeded || !strings.HasPrefix(last.Message, "ResourceQuota: exceeded quota: three") {
		t.Errorf("the latest refusal: %+v, %t", last, ok)
	}
	refusals := func() float64 {
		return testutil.ToFloat64(w.metrics.actions.WithLabelValues("Create", string(scaleUp), outcomeRefused))
	}
	before, first, begun := w.writes.Load(), refusals(), time.Now()
	w.Eventually("three further refusals", func() error {
		n := refusals() - first
		return wait.If(n >= 3, n)
	})
	took := time.Since(begun)
	// 1, 2 and 4 s, less a fifth: the first may be in progress.
	if n := w.writes.Load() - before; took < 3*time.Second || n > 8 {
		t.Errorf("%d writes in %s while the quota is used up", n, took)
	}
	if n := w.failures(); n != 0 {
		t.Errorf("%g errors", n)
	}
	if n := w.events.of(string(admission.QuotaExceeded)); n != 1 {
		t.Errorf("%d Events, want 1", n)
	}
	w.Must(w.Live.Patch(w.ctx, quota, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hard":{"pods":"8"}}}`))))
	w.awaitIdle("p", 8, 0)
	w.scalingSays("p", "refused", false)
	if last, ok := w.opts.Refusals.Last(w.Key("p")); ok {
		t.Errorf("still refused: %+v", last)
	}
}

// TestLimitRange: what can never be admitted is reported as such, and another template is tried at once.
func TestLimitRange(t *testing.T) {
	w := newWorld(t)
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "small"}}
	limits.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer,
		Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}}
	w.Must(w.Live.Create(w.ctx, limits))
	w.makePool("p", 3, func(p *v1alpha1.SandboxPool) {
		p.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
	})
	w.scalingSays("p", "LimitRange: maximum memory usage per Container is 1Gi, but limit is 2Gi", true)
	if last, ok := w.opts.Refusals.Last(w.Key("p")); !ok || last.Reason != admission.InvalidSpec {
		t.Errorf("the latest refusal: %+v, %t", last, ok)
	}
	// As after a long refusal: the new template does not wait for that.
	for range 6 {
		w.opts.Refusals.Refused(w.Key("p"), mustRevision(t, w.Pool("p")), admission.Refuse(0, admission.InvalidSpec, "long", time.Minute), false)
	}
	pool := w.Pool("p")
	before := pool.DeepCopy()
	pool.Spec.Template.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("512Mi")
	w.Must(w.Live.Patch(w.ctx, pool, client.MergeFrom(before)))
	begun := time.Now()
	w.awaitIdle("p", 3, 0)
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	if n := w.failures(); n != 0 {
		t.Errorf("%g errors", n)
	}
}

func mustRevision(t *testing.T, pool *v1alpha1.SandboxPool) string {
	t.Helper()
	revision, err := revisionOf(&pool.Spec, "")
	must.Succeed(t, err)
	return revision
}

// TestPluginsDecideAboutPods: a refusal makes the pool wait, an error is retried, and a plugin's additions are in the Pod.
func TestPluginsDecideAboutPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	room, broken := 2, 3
	w.gate.set(func(r *admission.PodRequest) (admission.Verdict, error) {
		if broken > 0 {
			broken--
			return admission.Verdict{}, errors.New("no idea")
		}
		if room == 0 {
			return admission.Refuse(0, admission.InsufficientResources, "no room left", 0), nil
		}
		room--
		r.Pod.Annotations["example.org/added"] = "yes"
		return admission.Admit(1), nil
	})
	w.makePool("p", 4)
	for _, pod := range w.awaitIdle("p", 2, 0) {
		if pod.Annotations["example.org/added"] != "yes" {
			t.Errorf("Pod %s lacks what the plugin added", pod.Name)
		}
	}
	w.scalingSays("p", "refused: no room left", true)
	if n := w.failures(); n != 3 {
		t.Errorf("%g errors, want 3", n)
	}
	w.gate.set(nil)
	w.awaitIdle("p", 4, 0)
	w.scalingSays("p", "refused", false)
}
