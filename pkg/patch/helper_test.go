// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

// server is an API server in memory that records writes.
type server struct {
	client.Client
	writes []string
}

func newServer(t *testing.T, pool *v1alpha1.SandboxPool) *server {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, v1alpha1.AddToScheme(scheme))
	s := &server{}
	s.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool).WithStatusSubresource(pool).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
				body, _ := p.Data(obj)
				s.writes = append(s.writes, "main "+string(body))
				return c.Patch(ctx, obj, p, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				body, _ := p.Data(obj)
				s.writes = append(s.writes, sub+" "+string(body))
				return c.SubResource(sub).Patch(ctx, obj, p, opts...)
			},
		}).Build()
	return s
}

func (s *server) read(t *testing.T) *v1alpha1.SandboxPool {
	t.Helper()
	pool := &v1alpha1.SandboxPool{}
	must.Succeed(t, s.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, pool))
	return pool
}

func newPool() *v1alpha1.SandboxPool {
	return &v1alpha1.SandboxPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u-1", Labels: map[string]string{"keep": "1"}},
		Spec: v1alpha1.SandboxPoolSpec{
			Replicas: 3,
			EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "one"}}}},
			},
		},
		Status: v1alpha1.SandboxPoolStatus{Phase: v1alpha1.SandboxPoolPhaseReady, IdleReplicas: 3},
	}
}

func TestPatch(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.SandboxPool)
		writes []string
	}{
		"nothing changed, nothing is written": {
			change: func(p *v1alpha1.SandboxPool) {
				p.Spec.Template.Spec.Volumes = []corev1.Volume{} // an empty list is no list
				p.Status.PhaseSelectors = map[string]string{}
			},
		},
		"metadata and spec in one write": {
			change: func(p *v1alpha1.SandboxPool) {
				p.Annotations = map[string]string{"new": "1"}
				p.Spec.Replicas = 0
			},
			writes: []string{`main {"metadata":{"annotations":{"new":"1"},"uid":"u-1"},"spec":{"replicas":0}}`},
		},
		"a list in metadata is replaced only as it was read": {
			change: func(p *v1alpha1.SandboxPool) { p.Finalizers = []string{v1alpha1.SandboxPoolFinalizer} },
			writes: []string{`main {"metadata":{"finalizers":["agentbox.navix.sh/finalizer"],"resourceVersion":"999","uid":"u-1"}}`},
		},
		"a count that fell to zero is sent as zero": {
			change: func(p *v1alpha1.SandboxPool) { p.Status.IdleReplicas, p.Status.RunningReplicas = 0, 3 },
			writes: []string{`status {"status":{"idleReplicas":0,"runningReplicas":3}}`},
		},
		"status survives the write of the rest": {
			change: func(p *v1alpha1.SandboxPool) {
				p.Spec.Replicas = 4
				p.Status.Phase = v1alpha1.SandboxPoolPhaseScalingUp
			},
			writes: []string{
				`main {"metadata":{"uid":"u-1"},"spec":{"replicas":4}}`,
				`status {"status":{"phase":"ScalingUp"}}`,
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, newPool())
			pool := s.read(t)
			helper := NewPatchHelper(s, pool)
			tt.change(pool)
			wanted := pool.DeepCopy()
			if got := helper.HasChanges(pool); got != (len(tt.writes) > 0) {
				t.Errorf("HasChanges() = %v", got)
			}
			must.Succeed(t, helper.Patch(t.Context(), pool))
			if diff := cmp.Diff(tt.writes, s.writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			stored := s.read(t)
			for _, got := range []*v1alpha1.SandboxPool{pool, stored} {
				if got.Spec.Replicas != wanted.Spec.Replicas || got.Status.Phase != wanted.Status.Phase ||
					got.Status.IdleReplicas != wanted.Status.IdleReplicas {
					t.Errorf("got %+v %+v, want %+v %+v", got.Spec, got.Status, wanted.Spec, wanted.Status)
				}
			}
			s.writes = nil
			if err := helper.Patch(t.Context(), pool); err != nil || len(s.writes) > 0 {
				t.Errorf("a second Patch wrote %v, %v", s.writes, err)
			}
		})
	}
}

func TestPatchKeepsTheWantedStatusWhenAWriteFails(t *testing.T) {
	s := newServer(t, newPool())
	pool := s.read(t)
	helper := NewPatchHelper(s, pool)
	must.Succeed(t, s.Delete(t.Context(), newPool()))
	pool.Status.IdleReplicas = 1
	err := helper.Patch(t.Context(), pool)
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "default/a") {
		t.Errorf("Patch() = %v, want NotFound naming the pool", err)
	}
	if pool.Status.IdleReplicas != 1 || !helper.HasChanges(pool) {
		t.Error("the wanted status is lost")
	}
}

func TestPatchLeavesOtherWritersAlone(t *testing.T) {
	s := newServer(t, newPool())
	pool := s.read(t)
	helper := NewPatchHelper(s, pool)

	other := s.read(t)
	otherHelper := NewPatchHelper(s, other)
	other.Status.AutoScaling = &v1alpha1.PoolAutoScalingStatus{ScaleUpErrorMessage: "no room"}
	must.Succeed(t, otherHelper.Patch(t.Context(), other))
	pool.Status.IdleReplicas = 2
	must.Succeed(t, helper.Patch(t.Context(), pool))
	if got := s.read(t).Status; got.IdleReplicas != 2 || got.AutoScaling == nil {
		t.Errorf("got %+v, want both changes", got)
	}
}

// statusChanges must cover every field; otherwise a change would be lost.
func TestStatusChangesKnowsEveryField(t *testing.T) {
	full := v1alpha1.SandboxPoolStatus{
		Phase: "x", Selector: "x",
		IdleReplicas: 1, UnavailableIdleReplicas: 1, RunningReplicas: 1, StartingReplicas: 1, StoppingReplicas: 1,
		FailedReplicas: 1, PendingRequests: 1,
		LabelSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{"a": "1"}},
		PhaseSelectors: map[string]string{"all": "x"},
		Conditions:     []metav1.Condition{{Type: "x"}},
		AutoScaling:    &v1alpha1.PoolAutoScalingStatus{ObservedGeneration: 1},
	}
	value := reflect.ValueOf(full)
	for i := range value.NumField() {
		field := value.Type().Field(i)
		if value.Field(i).IsZero() {
			t.Errorf("the test does not set %s", field.Name)
		}
		var one v1alpha1.SandboxPoolStatus
		reflect.ValueOf(&one).Elem().Field(i).Set(value.Field(i))
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		added, removed := statusChanges(&v1alpha1.SandboxPoolStatus{}, &one), statusChanges(&one, &v1alpha1.SandboxPoolStatus{})
		if _, ok := added[name]; !ok || len(added) != 1 {
			t.Errorf("setting %s gives %v", name, added)
		}
		if _, ok := removed[name]; !ok || len(removed) != 1 {
			t.Errorf("clearing %s gives %v", name, removed)
		}
	}
}

func TestStatusChangesRemovesInsideObjects(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	before := v1alpha1.SandboxPoolStatus{
		LabelSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{"a": "1", "b": "1"}},
		PhaseSelectors: map[string]string{"all": "x", "old": "y"},
		AutoScaling:    &v1alpha1.PoolAutoScalingStatus{IdleZeroSince: &since, LastScaleUpTime: &since},
	}
	after := v1alpha1.SandboxPoolStatus{
		LabelSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{"a": "2"}},
		PhaseSelectors: map[string]string{"all": "x"},
		AutoScaling:    &v1alpha1.PoolAutoScalingStatus{LastScaleUpTime: &since},
	}
	got, err := json.Marshal(statusChanges(&before, &after))
	must.Succeed(t, err)
	want := `{"autoscaling":{"idleZeroSince":null,"lastScaleDownTime":null,"lastScaleUpAttemptResult":null,` +
		`"lastScaleUpAttemptTime":null,"lastScaleUpTime":"2026-01-01T00:00:00Z","observedGeneration":0,"scaleUpErrorMessage":null},` +
		`"labelSelector":{"matchExpressions":null,"matchLabels":{"a":"2","b":null}},"phaseSelectors":{"old":null}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSetCondition(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clk := testclock.NewFakePassiveClock(start)
	var conditions []metav1.Condition
	type want struct {
		changed    bool
		transition time.Duration
	}
	for i, step := range []struct {
		c          Condition
		generation int64
		want       want
	}{
		{False("Ready", v1alpha1.ReasonReconciling, "one to go"), 1, want{true, 0}},
		{False("Ready", v1alpha1.ReasonReconciling, "one to go"), 1, want{false, 0}},
		{False("Ready", v1alpha1.ReasonError, "no"), 2, want{true, 0}},
		{True("Ready", v1alpha1.ReasonReconciled, ""), 2, want{true, 3 * time.Minute}},
	} {
		clk.SetTime(start.Add(time.Duration(i) * time.Minute))
		changed := SetCondition(&conditions, clk, step.generation, step.c)
		got := conditions[0]
		if changed != step.want.changed || !got.LastTransitionTime.Time.Equal(start.Add(step.want.transition)) ||
			got.ObservedGeneration != step.generation || got.Reason != string(step.c.Reason) || len(conditions) != 1 {
			t.Errorf("step %d: changed=%v %+v", i, changed, got)
		}
	}
}

func BenchmarkPatch(b *testing.B) {
	before, after := newPool(), newPool()
	after.Status.IdleReplicas, after.Status.RunningReplicas = 2, 1
	b.Run("by hand", func(b *testing.B) {
		for b.Loop() {
			_, _ = json.Marshal(map[string]any{"status": statusChanges(&before.Status, &after.Status)})
		}
	})
	b.Run("MergeFrom", func(b *testing.B) {
		for b.Loop() {
			_, _ = client.MergeFrom(before).Data(after)
		}
	})
}
