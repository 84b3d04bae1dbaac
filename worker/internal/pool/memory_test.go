// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
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
