// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// poolPlugin decides about pools, and records up to how many replicas it was asked.
type poolPlugin struct {
	name   string
	mu     sync.Mutex
	asked  []int32
	answer func(ctx context.Context, change *Change) (Verdict, error)
}

func (p *poolPlugin) Name() string { return p.name }

func (p *poolPlugin) PreCreatePool(ctx context.Context, change *Change) (Verdict, error) {
	p.mu.Lock()
	p.asked = append(p.asked, change.To)
	p.mu.Unlock()
	return p.answer(ctx, change)
}

func (p *poolPlugin) PreUpdatePool(ctx context.Context, change *Change) (Verdict, error) {
	return p.PreCreatePool(ctx, change)
}

func (p *poolPlugin) PreDeletePool(ctx context.Context, change *Change) (Verdict, error) {
	return p.PreCreatePool(ctx, change)
}

// upTo admits that many, and everything below.
func upTo(name string, most int32) *poolPlugin {
	return &poolPlugin{name: name, answer: func(_ context.Context, change *Change) (Verdict, error) {
		if change.To <= most {
			return Admit(change.To), nil
		}
		return Verdict{Replicas: most, Reason: QuotaExceeded, Message: name, RetryAfter: time.Second}, nil
	}}
}

func change(from, to int32) *Change {
	return &Change{Key: "k", From: from, To: to, Pool: &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"},
		Spec: v1alpha1.SandboxPoolSpec{Replicas: to}}}
}

// TestChainAdmitsWhatAllAdmit: each is asked for what those before it admit, and those that admitted more are asked again.
func TestChainAdmitsWhatAllAdmit(t *testing.T) {
	for _, c := range []struct {
		name     string
		most     []int32
		from, to int32
		probe    bool
		want     int32
		reason   string // the plugin that gave it
		asked    [][]int32
	}{
		{"no plugin", nil, 0, 5, false, 5, "", nil},
		{"all admit", []int32{9, 9}, 0, 5, false, 5, "", [][]int32{{5}, {5}}},
		{"the first admits less", []int32{3, 9}, 0, 5, false, 3, "0", [][]int32{{5}, {3}}},
		{"a later one admits less", []int32{9, 3}, 0, 5, false, 3, "1", [][]int32{{5, 3}, {5, 3}}},
		{"each less than the one before", []int32{4, 3, 2}, 0, 5, false, 2, "2", [][]int32{{5, 2}, {4, 2}, {3, 2}}},
		{"none", []int32{9, 0}, 0, 5, false, 0, "1", [][]int32{{5, 0}, {5, 0}}},
		{"less than there is already", []int32{2}, 4, 6, false, 4, "0", [][]int32{{6}}},
		{"a probe reserves nothing that would have to be taken back", []int32{9, 3}, 1, 5, true, 3, "1", [][]int32{{5}, {5}}},
		{"no growth", []int32{0}, 5, 5, false, 5, "", [][]int32{nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var plugins []Plugin
			var all []*poolPlugin
			for i, most := range c.most {
				all = append(all, upTo(string(rune('0'+i)), most))
				plugins = append(plugins, all[i])
			}
			asked := change(c.from, c.to)
			asked.Probe = c.probe
			v, err := New(clock.RealClock{}, plugins...).PreUpdatePool(t.Context(), asked)
			if err != nil || v.Replicas != c.want || v.Message != c.reason {
				t.Errorf("got %+v, %v; want %d by %q", v, err, c.want, c.reason)
			}
			if asked.To != c.to {
				t.Errorf("the question itself was changed to %d", asked.To)
			}
			for i := range all {
				if diff := cmp.Diff(c.asked[i], all[i].asked); diff != "" {
					t.Errorf("plugin %d was asked for (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

func TestChainWithoutPlugins(t *testing.T) {
	for name, c := range map[string]*Chain{"nil": nil, "empty": New(clock.RealClock{}),
		"with another one": New(clock.RealClock{}, NewRefusals(nil))} {
		created, err := c.PreCreatePool(t.Context(), change(0, 3))
		if err != nil || !created.Whole(3) {
			t.Errorf("%s: creation: %+v, %v", name, created, err)
		}
		deleted, err := c.PreDeletePool(t.Context(), change(3, 0))
		if err != nil || !deleted.Whole(0) {
			t.Errorf("%s: deletion: %+v, %v", name, deleted, err)
		}
		pod, err := c.PreCreatePod(t.Context(), &PodRequest{Pool: &v1alpha1.SandboxPool{}, Pod: &corev1.Pod{}})
		if err != nil || !pod.Whole(1) {
			t.Errorf("%s: Pod: %+v, %v", name, pod, err)
		}
	}
}

func TestRefusalsOfNothing(t *testing.T) {
	refusing := func(to int32) Verdict { return Verdict{Replicas: to, Reason: InvalidSpec, Message: "no"} }
	p := &poolPlugin{name: "p", answer: func(_ context.Context, c *Change) (Verdict, error) { return refusing(c.To), nil }}
	if v, err := New(clock.RealClock{}, p).PreCreatePool(t.Context(), change(0, 0)); err != nil || v.Whole(0) || v.Reason != InvalidSpec {
		t.Errorf("a pool without replicas: %+v, %v", v, err)
	}
	if v, err := New(clock.RealClock{}, p).PreDeletePool(t.Context(), change(3, 0)); err != nil || v.Replicas != 3 || v.Reason != InvalidSpec {
		t.Errorf("a deletion: %+v, %v", v, err)
	}
	silent := &poolPlugin{name: "p", answer: func(context.Context, *Change) (Verdict, error) { return Verdict{Replicas: 1}, nil }}
	if v, err := New(clock.RealClock{}, silent).PreCreatePool(t.Context(), change(0, 2)); err != nil || v.Replicas != 1 || v.Reason == "" ||
		v.Message == "" {
		t.Errorf("a part without a reason: %+v, %v", v, err)
	}
}

func TestPluginsEditPools(t *testing.T) {
	label := func(name string, do func(*v1alpha1.SandboxPool)) *poolPlugin {
		return &poolPlugin{name: name, answer: func(_ context.Context, c *Change) (Verdict, error) {
			do(c.Pool)
			return Admit(c.To), nil
		}}
	}
	c := change(0, 2)
	chain := New(clock.RealClock{},
		label("first", func(p *v1alpha1.SandboxPool) { p.Labels = map[string]string{"a": "1"} }),
		label("second", func(p *v1alpha1.SandboxPool) { p.Annotations = map[string]string{"b": p.Labels["a"] + "2"} }),
	)
	if _, err := chain.PreCreatePool(t.Context(), c); err != nil || c.Pool.Annotations["b"] != "12" {
		t.Errorf("edits: %+v, %v", c.Pool, err)
	}
	for name, do := range map[string]func(*v1alpha1.SandboxPool){
		"name":     func(p *v1alpha1.SandboxPool) { p.Name = "other" },
		"replicas": func(p *v1alpha1.SandboxPool) { p.Spec.Replicas = 100 },
	} {
		c := change(0, 2)
		if _, err := New(clock.RealClock{}, label("bad", do)).PreCreatePool(t.Context(), c); err == nil ||
			!strings.Contains(err.Error(), "bad") ||
			c.Pool.Name != "p" || c.Pool.Spec.Replicas != 2 {
			t.Errorf("a changed %s: %v, %+v", name, err, c.Pool)
		}
	}
	update := change(1, 2)
	if _, err := chain.PreUpdatePool(t.Context(), update); err != nil || len(update.Pool.Labels) != 0 {
		t.Errorf("an update was edited: %v, %v", update.Pool.Labels, err)
	}
}

// TestEditsAreOfOneRound: a plugin that is asked again, for less, edits the pool as it was.
func TestEditsAreOfOneRound(t *testing.T) {
	appends := &poolPlugin{name: "appends", answer: func(_ context.Context, c *Change) (Verdict, error) {
		c.Pool.Spec.Template.Spec.Containers = append(c.Pool.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar"})
		return Admit(c.To), nil
	}}
	c := change(0, 5)
	v, err := New(clock.RealClock{}, appends, upTo("most", 3)).PreCreatePool(t.Context(), c)
	if err != nil || v.Replicas != 3 || len(appends.asked) != 2 {
		t.Fatalf("%+v, %v, asked for %v", v, err, appends.asked)
	}
	if n := len(c.Pool.Spec.Template.Spec.Containers); n != 1 {
		t.Errorf("%d containers were added, want 1", n)
	}
}

type podPlugin func(*PodRequest) (Verdict, error)

func (podPlugin) Name() string { return "pods" }
func (p podPlugin) PreCreatePod(_ context.Context, r *PodRequest) (Verdict, error) {
	return p(r)
}

func TestPluginsAndPods(t *testing.T) {
	ask := func(do func(*corev1.Pod), v Verdict) (*PodRequest, Verdict, error) {
		r := &PodRequest{Pool: &v1alpha1.SandboxPool{}, Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "p-1", Labels: map[string]string{v1alpha1.SandboxPhaseLabelKey: "idle"}, Finalizers: []string{v1alpha1.SandboxProtectionFinalizer},
		}}}
		got, err := New(clock.RealClock{}, podPlugin(func(r *PodRequest) (Verdict, error) { do(r.Pod); return v, nil })).PreCreatePod(t.Context(),
			r)
		return r, got, err
	}
	if r, v, err := ask(func(p *corev1.Pod) { p.Spec.NodeName = "n" }, Admit(1)); err != nil || !v.Whole(1) || r.Pod.Spec.NodeName != "n" {
		t.Errorf("an edit: %+v, %v", v, err)
	}
	if r, v, err := ask(func(p *corev1.Pod) { p.Spec.NodeName = "n" }, Refuse(0, QuotaExceeded, "full", 0)); err != nil || v.Whole(1) ||
		r.Pod.Spec.NodeName != "" {
		t.Errorf("a refusal: %+v, %v", v, err)
	}
	for name, do := range map[string]func(*corev1.Pod){
		"name":      func(p *corev1.Pod) { p.Name = "x" },
		"phase":     func(p *corev1.Pod) { p.Labels[v1alpha1.SandboxPhaseLabelKey] = "running" },
		"finalizer": func(p *corev1.Pod) { p.Finalizers = nil },
		"key":       func(p *corev1.Pod) { p.Annotations = map[string]string{"agentbox.navix.sh/x": "y"} },
	} {
		if r, _, err := ask(do, Admit(1)); err == nil || r.Pod.Labels[v1alpha1.SandboxPhaseLabelKey] != "idle" || len(r.Pod.Finalizers) != 1 {
			t.Errorf("a changed %s: %v", name, err)
		}
	}
}

// TestAnErrorIsNoRefusal: a panic, an error and a plugin that never returns are errors, and are counted as such.
func TestAnErrorIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, done := make(chan struct{}), atomic.Int32{}
		chains := map[string]*Chain{
			"panicked: oh": New(clock.RealClock{}, &poolPlugin{name: "p", answer: func(context.Context, *Change) (Verdict, error) { panic("oh") }}),
			"broken": New(clock.RealClock{}, &poolPlugin{name: "p",
				answer: func(context.Context, *Change) (Verdict, error) { return Admit(5), errors.New("broken") }}),
			"no verdict": New(clock.RealClock{}, &poolPlugin{name: "p", answer: func(_ context.Context, c *Change) (Verdict, error) {
				<-stuck // whatever its context says
				c.Pool.Name = "late"
				done.Add(1)
				return Admit(5), nil
			}}),
		}
		for want, chain := range chains {
			c := change(0, 5)
			begun := time.Now()
			v, err := chain.PreCreatePool(t.Context(), c)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "admission plugin p, PreCreatePool") ||
				v != (Verdict{}) {
				t.Errorf("%s: %+v, %v", want, v, err)
			}
			if took := time.Since(begun); took > deadline {
				t.Errorf("%s: took %s", want, took)
			}
			registry := prometheus.NewRegistry()
			if err := chain.Register(registry); err != nil {
				t.Error(err)
			}
			if n := testutil.ToFloat64(chain.metrics.verdicts.WithLabelValues("p", "PreCreatePool", "error")); n != 1 {
				t.Errorf("%s: counted %g errors", want, n)
			}
		}
		// A plugin that never returns holds so many questions and no more.
		hung := chains["no verdict"]
		for range 3 * maxAsked {
			go func() { _, _ = hung.PreCreatePool(t.Context(), change(0, 5)) }()
		}
		time.Sleep(2 * deadline)
		if n := len(hung.plugins[0].slots); n != maxAsked {
			t.Errorf("%d questions are with it, want %d", n, maxAsked)
		}
		close(stuck)
		synctest.Wait()
		if n := done.Load(); n != maxAsked {
			t.Errorf("%d questions reached it, want %d", n, maxAsked)
		}
	})
}

func TestPluginsThatNeverAgree(t *testing.T) {
	less := func(name string) *poolPlugin {
		return &poolPlugin{name: name, answer: func(_ context.Context, c *Change) (Verdict, error) {
			return Verdict{Replicas: c.To - 1, Reason: QuotaExceeded, Message: name}, nil
		}}
	}
	if v, err := New(clock.RealClock{}, less("a"), less("b")).PreUpdatePool(t.Context(), change(0, 100)); err == nil {
		t.Errorf("got %+v", v)
	}
}
