// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/scalepolicy"
)

// A member that cannot grow is reported once, and again when it becomes worse; waiting claims are mentioned only if there are
// any.
func TestAFullPoolIsToldOfAsItIs(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	metrics, err := newMetrics(nil)
	must.Succeed(t, err)
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{clock: clk, events: recorder, outlooks: newOutlooks(clk), metrics: metrics}
	g := &group{}
	one := &target{key: types.NamespacedName{Name: "a"}, pool: &v1alpha1.SandboxPool{}, memo: &memo{}}
	full := scalepolicy.MemberDecision{
		Direction: scalepolicy.None, From: 4, To: 4, Reason: scalepolicy.ReasonMemberCeiling, Text: "its maxReplicas is 4",
	}
	idle := scalepolicy.MemberDecision{Direction: scalepolicy.None, From: 4, To: 4, Reason: scalepolicy.ReasonNoTrigger}
	const (
		ahead = "Warning MemberCeiling no claim waits yet, but the pool cannot grow beyond 4: its maxReplicas is 4"
		waits = "Warning MemberCeiling claims wait and the pool cannot grow beyond 4: its maxReplicas is 4"
	)
	for i, step := range []struct {
		waiting int32
		decided scalepolicy.MemberDecision
		want    string
	}{
		{0, full, ahead}, {0, full, ""}, {2, full, waits}, {2, full, ""}, {0, full, ""}, {2, full, ""},
		{0, idle, ""}, {0, full, ahead}, {0, idle, ""}, {1, full, waits},
	} {
		one.waiting = step.waiting
		r.observe(t.Context(), &v1alpha1.SandboxEnv{}, g, one, &step.decided)
		got := ""
		select {
		case got = <-recorder.Events:
		default:
		}
		if got != step.want {
			t.Errorf("step %d: told %q, want %q", i, got, step.want)
		}
	}
}
