// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"navix.sh/atoll/api/v1alpha1"
)

var thisPool = types.NamespacedName{Namespace: "default", Name: "this"}

// TestTimeline holds I11: a stage lasts as long as this process has seen it, whatever the Pod says about its beginning.
func TestTimeline(t *testing.T) {
	clk := testclock.NewFakePassiveClock(time.Unix(1000, 0))
	tl := newMemory(clk).timeline
	observe := func(stage string, want time.Duration) {
		t.Helper()
		stages := map[types.UID]string{}
		if stage != "" {
			stages["u"] = stage
		}
		if got := tl.observe(thisPool, stages)["u"]; got != want {
			t.Errorf("%q has lasted %s, want %s", stage, got, want)
		}
	}
	observe("marked/2020-01-01T00:00:00Z", 0)
	clk.SetTime(clk.Now().Add(3 * time.Second))
	observe("marked/2020-01-01T00:00:00Z", 3*time.Second)
	observe("marked/2030-01-01T00:00:00Z", 0) // marked again
	clk.SetTime(clk.Now().Add(time.Second))
	observe("", 0)
	if len(tl.pools) != 0 {
		t.Errorf("left behind: %v", tl.pools)
	}
	observe("marked/2030-01-01T00:00:00Z", 0)
}

// Many pools share the writes of statuses, each in its slot; and a slot is not lost while it is waited for.
func TestStatusesOfManyPoolsAreSpaced(t *testing.T) {
	clk := testclock.NewFakePassiveClock(time.Unix(1000, 0))
	statuses := newMemory(clk).statuses
	pool := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: "default", Name: strconv.Itoa(i)}
	}
	for i := range 3 * statusRate {
		want := time.Duration(max(0, i+1-statusRate)) * time.Second / statusRate
		if got := statuses.waitSlot(pool(i)); got != want {
			t.Errorf("pool %d waits %s, want %s", i, got, want)
		}
		if want == 0 {
			statuses.wrote(pool(i))
		}
	}
	if got := statuses.wait(pool(3 * statusRate)); got != 0 {
		t.Errorf("an urgent write waits %s", got)
	}
	clk.SetTime(clk.Now().Add(500 * time.Millisecond))
	if got := statuses.wait(pool(0)); got != statusInterval/2 {
		t.Errorf("an urgent write of a pool that was written just now waits %s", got)
	}
	for i := statusRate; i < 3*statusRate; i++ {
		want := max(0, time.Duration(i+1-statusRate)*time.Second/statusRate-500*time.Millisecond)
		if got := statuses.waitSlot(pool(i)); got != want {
			t.Errorf("after half a second pool %d waits %s, want %s", i, got, want)
		}
	}
}

func TestUrgent(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: status}}
	}
	available, scaling := v1alpha1.SandboxPoolConditionAvailable, v1alpha1.SandboxPoolConditionScaling
	for _, tt := range []struct {
		before, after []metav1.Condition
		want          bool
	}{
		{nil, condition(available, metav1.ConditionFalse), true},
		{condition(available, metav1.ConditionFalse), condition(available, metav1.ConditionTrue), true},
		{condition(available, metav1.ConditionTrue), condition(available, metav1.ConditionTrue), false},
		{condition(scaling, metav1.ConditionFalse), condition(scaling, metav1.ConditionTrue), false},
	} {
		if got := urgent(tt.before, tt.after); got != tt.want {
			t.Errorf("%v, then %v: urgent is %t", tt.before, tt.after, got)
		}
	}
}

func TestCrashBackoff(t *testing.T) {
	clk := testclock.NewFakePassiveClock(time.Unix(0, 0))
	c := newMemory(clk).crashes
	want := []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}
	for round, delay := range want {
		if got := c.remaining(thisPool); got != delay {
			t.Errorf("round %d waits %s, want %s", round, got, delay)
		}
		clk.SetTime(clk.Now().Add(delay))
		if got := c.remaining(thisPool); got != 0 {
			t.Errorf("round %d still waits %s", round, got)
		}
		c.replaced(thisPool)
	}
	for range 20 {
		c.replaced(thisPool)
	}
	if got := c.remaining(thisPool); got != crashBackoffMax {
		t.Errorf("waits %s at last, want %s", got, crashBackoffMax)
	}
	clk.SetTime(clk.Now().Add(crashesForgotten + 1))
	c.remaining(thisPool)
	if len(c.pools) != 0 {
		t.Error("not forgotten")
	}
}
