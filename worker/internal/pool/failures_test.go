// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/admission"
)

// makesPods responds as a test says.
type makesPods struct {
	client.Client
	answer error
}

func (c *makesPods) Create(context.Context, client.Object, ...client.CreateOption) error {
	return c.answer
}

// TestPodsThatCannotBeMade: an objection of the API server that lasts becomes a refusal, so that it is reported, the pool does
// not grow, and retries become rarer; it ends once a Pod could be created.
func TestPodsThatCannotBeMade(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, tc := range map[string]struct {
		answer  error
		refused bool
	}{
		"a policy of the namespace":  {apierrors.NewForbidden(pods, "p-1", errors.New(`violates PodSecurity "restricted:latest"`)), true},
		"a field":                    {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p-1", nil), true},
		"a webhook that is away":     {apierrors.NewInternalError(errors.New(`failed calling webhook "pods.example"`)), true},
		"an API server that is busy": {apierrors.NewTooManyRequests("busy", 1), false},
		"an API server that breaks":  {apierrors.NewInternalError(errors.New("etcdserver: no leader")), false},
		"an API server that is away": {errors.New("connection refused"), false},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
			m, err := newMetrics(prometheus.NewRegistry())
			must.Succeed(t, err)
			api := &makesPods{answer: tc.answer}
			r := &Reconciler{
				opts:    Options{Client: api, Clock: clk, Refusals: admission.NewRefusals(clk)},
				metrics: m, notices: newNotices(events.NewFakeRecorder(1000), clk), memory: newMemory(clk),
			}
			key := types.NamespacedName{Namespace: "ns", Name: "p"}
			s := &snapshot{Revision: "1", Pool: &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}}
			s.Pool.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "i"}}
			for range 6 {
				if err := r.create(t.Context(), key, s, 2); err == nil {
					t.Fatal("a failure that may pass is none")
				}
				if last, ok := r.opts.Refusals.Last(key); ok {
					t.Fatalf("refused at once: %+v", last)
				}
				clk.SetTime(clk.Now().Add(5 * time.Second))
			}
			err = r.create(t.Context(), key, s, 2)
			last, ok := r.opts.Refusals.Last(key)
			if (err == nil) != tc.refused || ok != tc.refused || ok && !strings.Contains(tc.answer.Error(), last.Message) {
				t.Fatalf("after 30 s: %v, %+v", err, last)
			}
			if tc.refused && r.opts.Refusals.Hold(key, "1") == 0 {
				t.Error("it is tried again at once")
			}
			api.answer = nil
			must.Succeed(t, r.create(t.Context(), key, s, 2))
			if _, ok := r.opts.Refusals.Last(key); ok || len(r.failures.pools) > 0 {
				t.Error("still refused, although a Pod could be made")
			}
		})
	}
}

func TestFailuresBeginAnew(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	f, key := newMemory(clk).failures, types.NamespacedName{Name: "p"}
	for i, step := range []struct {
		after   time.Duration
		subject string
		steady  bool
	}{
		{0, "1", false}, {29 * time.Second, "1", false}, {time.Second, "1", true}, {time.Minute, "1", true},
		{time.Second, "2", false}, {30 * time.Second, "2", true}, {time.Hour, "2", false},
	} {
		clk.SetTime(clk.Now().Add(step.after))
		if got := f.steady(key, step.subject); got != step.steady {
			t.Errorf("step %d: steady %t", i, got)
		}
	}
}
