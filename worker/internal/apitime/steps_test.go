// SPDX-License-Identifier: Apache-2.0

package apitime

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return noon.Add(d) }

// I11: an age is never too large, however the clock was stepped, and right for every time that it has shown once.
func TestI11Since(t *testing.T) {
	const m, s = time.Minute, time.Second
	forward := []step{{at(0), at(10 * m), 30 * s}}
	back := []step{{at(0), at(-10 * m), 30 * s}}
	toAndFro := []step{{at(0), at(10 * m), 0}, {at(11 * m), at(2 * m), 0}}
	for name, tc := range map[string]struct {
		steps  []step
		t, now time.Duration
		want   time.Duration
	}{
		"no step":                          {nil, -m, 0, m},
		"no step, ahead":                   {nil, m, 0, 0},
		"a moment ahead":                   {nil, 2 * s, 0, 0},
		"forward, from before":             {forward, -m, 12 * m, 3 * m},
		"forward, from after":              {forward, 11 * m, 12 * m, m},
		"forward, stepped over":            {forward, 5 * m, 12 * m, 2 * m},
		"forward, ahead":                   {forward, 13 * m, 12 * m, 0},
		"back, from long before":           {back, -11 * m, -8 * m, 13 * m},
		"back, from before, shown once":    {back, -m, -8 * m, 3 * m},
		"back, shown twice":                {back, -9 * m, -8 * m, m},
		"back, ahead":                      {back, m, -8 * m, 0},
		"back, maybe from after":           {back, -10*m - 30*s, -8 * m, 150 * s},
		"back, surely from before":         {back, -10*m - 31*s, -8 * m, 12*m + 31*s},
		"to and fro, from before":          {toAndFro, -m, 3 * m, 3 * m},
		"to and fro, from between":         {toAndFro, 10*m + 30*s, 3 * m, 90 * s},
		"to and fro, from after":           {toAndFro, 2*m + 30*s, 3 * m, 30 * s},
		"to and fro, stepped over twice":   {toAndFro, 1*m + 30*s, 3 * m, 2 * m},
		"to and fro, shown by nothing yet": {toAndFro, 9 * m, 3 * m, 0},
	} {
		if got := (&steps{Steps: tc.steps}).since(at(tc.t), at(tc.now)); got != tc.want {
			t.Errorf("%s: %s ago, want %s", name, got, tc.want)
		}
	}
}

func TestAgo(t *testing.T) {
	const m = time.Minute
	known := &steps{Steps: []step{{at(0), at(10 * m), 0}, {at(11 * m), at(2 * m), 0}}}
	for age, want := range map[time.Duration]time.Duration{0: 3 * m, m: 2 * m, 90 * time.Second: 10*m + 30*time.Second, 2 * m: 10 * m,
		5 * m: -3 * m} {
		if got := known.ago(age, at(3*m)); !got.Equal(at(want)) {
			t.Errorf("%s ago it was %s, want %s", age, got, at(want))
		}
	}
}
