// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestReading(t *testing.T) {
	wall := time.Date(2026, 11, 21, 12, 0, 0, 5, time.UTC)
	a, b := reading(wall, time.Minute), reading(wall.Add(-10*time.Minute), 2*time.Minute)
	if !a.Equal(wall) || !b.Equal(wall.Add(-10*time.Minute)) && b.Round(0).Equal(wall.Add(-10*time.Minute)) {
		t.Errorf("wall clocks %v and %v", a.Round(0), b.Round(0))
	}
	if a.Round(0).UnixNano() != wall.UnixNano() {
		t.Errorf("without its monotonic reading %v, want %v", a.Round(0), wall)
	}
	if got := b.Sub(a); got != time.Minute {
		t.Errorf("%v passed, want 1m: the wall clock decided", got)
	}
	if got := b.Round(0).Sub(a.Round(0)); got != -10*time.Minute {
		t.Errorf("the wall clock went %v", got)
	}
}

func TestMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		before := m.Now()
		m.step(-10 * time.Minute)
		time.Sleep(time.Second)
		if got := m.Since(before); got != time.Second {
			t.Errorf("%v passed, want 1s", got)
		}
		if off := time.Until(m.Now().Round(0)); off != -10*time.Minute {
			t.Errorf("the wall clock is off by %v", off)
		}
	})
}
