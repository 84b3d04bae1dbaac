// SPDX-License-Identifier: Apache-2.0

package offset

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/must"
)

var _ clock.WithTicker = (*Clock)(nil)

func TestAStepMovesTheWallClockAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "offset")
	c, err := New("@" + file)
	must.Succeed(t, err)
	// near is as exact as two clocks can be read one after the other.
	near := func(got, want time.Duration) bool { return (got - want).Abs() < time.Second }
	before, persisted := c.Now(), c.Now().Round(0)
	if off := before.Round(0).Sub(time.Now().Round(0)); !near(off, 0) {
		t.Errorf("without a file the clock is off by %s", off)
	}
	for _, step := range []struct {
		content string
		want    time.Duration
	}{{"10m", 10 * time.Minute}, {"1", 10 * time.Minute}, {"-10m\n", -10 * time.Minute}, {"0s", 0}} {
		must.Succeed(t, os.WriteFile(file, []byte(step.content), 0o600))
		c.readAt = time.Time{}
		after := c.Now()
		if got := after.Round(0).Sub(time.Now().Round(0)); !near(got, step.want) {
			t.Errorf("with %q the wall clock is off by %s", step.content, got)
		}
		if got := after.Sub(before); !near(got, 0) || got < 0 {
			t.Errorf("with %q the monotonic clock went on by %s", step.content, got)
		}
		if got := c.Since(before); !near(got, 0) || got < 0 {
			t.Errorf("with %q a time of this process was %s ago", step.content, got)
		}
		if got := c.Since(persisted); !near(got, step.want) {
			t.Errorf("with %q a time that was persisted was %s ago", step.content, got)
		}
	}
}

func TestSettings(t *testing.T) {
	for setting, want := range map[string]time.Duration{"": 0, "90s": 90 * time.Second, "-1h": -time.Hour} {
		c, err := New(setting)
		if err != nil || c.current() != want {
			t.Errorf("%q: %v, %v", setting, c, err)
		}
	}
	if _, err := New("soon"); err == nil {
		t.Error("a setting that is no duration is taken")
	}
}
