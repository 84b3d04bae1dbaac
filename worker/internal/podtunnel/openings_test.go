// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"testing"
	"time"
)

// An account opens one conversation at a time where the API server is fast, and more where it is far away.
func TestI14OpeningsOfAnAccountTakeTurns(t *testing.T) {
	for _, c := range []struct {
		took   []time.Duration
		atOnce int
	}{
		{nil, 1},
		{[]time.Duration{time.Millisecond}, 1},
		{[]time.Duration{25 * time.Millisecond}, 1},
		{[]time.Duration{50 * time.Millisecond}, 2},
		{[]time.Duration{300 * time.Millisecond, 100 * time.Millisecond, 2 * time.Second}, 4},
		{[]time.Duration{10 * time.Second}, 8},
	} {
		o := newOpenings()
		for _, d := range c.took {
			o.took(d)
		}
		if got := mostOpenings / int(weightOf(o.fastest())); got != c.atOnce {
			t.Errorf("openings that took %v: %d at a time, want %d", c.took, got, c.atOnce)
		}
	}
}

// What was measured long ago counts no more.
func TestOpeningsForget(t *testing.T) {
	o := newOpenings()
	o.took(time.Millisecond)
	for range openingsRecent {
		o.took(time.Second)
	}
	if got := o.fastest(); got != time.Second {
		t.Errorf("the fastest is %s, want 1s", got)
	}
}
