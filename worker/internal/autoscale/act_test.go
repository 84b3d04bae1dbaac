// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/scalepolicy"
	"navix.sh/atoll/worker/internal/admission"
)

// full refuses, and says when to ask again.
type full struct {
	asked int
	again time.Duration
}

func (f *full) PreUpdatePool(_ context.Context, c *admission.Change) (admission.Verdict, error) {
	f.asked++
	return admission.Refuse(c.From, admission.QuotaExceeded, "no room", f.again), nil
}

// TestAdmissionIsAskedWhenItSays: a plugin that names a time is not asked sooner, within bounds, even if no cooldown delays
// growth; and claims go elsewhere meanwhile.
func TestAdmissionIsAskedWhenItSays(t *testing.T) {
	for says, want := range map[time.Duration]time.Duration{
		0: betweenAttempts, 100 * time.Millisecond: betweenAttempts, 2 * time.Minute: 2 * time.Minute, time.Hour: longestWait,
	} {
		m := newMachine(time.Unix(2_000_000_000, 0))
		metrics, err := newMetrics(prometheus.NewRegistry())
		must.Succeed(t, err)
		gate := &full{again: says}
		r := &Reconciler{
			clock: m.local, times: m.times, steady: m.steady(), metrics: metrics, admission: gate,
			events: events.NewFakeRecorder(1000), outlooks: newOutlooks(m.local),
		}
		e, pool, g := &v1alpha1.SandboxEnv{}, &v1alpha1.SandboxPool{}, &group{}
		to := &target{key: types.NamespacedName{Name: "p"}, pool: pool, memo: &memo{}}
		d := &scalepolicy.MemberDecision{Direction: scalepolicy.Up, From: 2, To: 3, Floor: 2, Probe: true, CanGrow: true}
		grow := func() {
			must.Succeed(t, r.grow(t.Context(), e, g, to, d))
			r.observe(t.Context(), e, g, to, d)
		}
		grow()
		if _, saturated := r.Outlook(to.key); says > betweenAttempts && saturated != want {
			t.Errorf("told to ask in %s: saturated for %s", says, saturated)
		}
		m.pass(want - time.Millisecond)
		if grow(); gate.asked != 1 {
			t.Errorf("told to ask in %s: asked %d times before that", says, gate.asked)
		}
		m.pass(time.Millisecond)
		if grow(); gate.asked != 2 {
			t.Errorf("told to ask in %s: asked %d times then", says, gate.asked)
		}
	}
}
