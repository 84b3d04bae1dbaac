// SPDX-License-Identifier: Apache-2.0

package apitime

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return noon.Add(d) }

// I11: an age is never too great, however the clock was stepped, and right for every time that it has shown once.
func TestI11Since(t *testing.T) {
	const m, s = time.Minute, time.Second
	forward := []step{{at(0), at(10 * m)}}
	back := []step{{at(0), at(-10 * m)}}
	toAndFro := []step{{at(0), at(10 * m)}, {at(11 * m), at(2 * m)}}
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
