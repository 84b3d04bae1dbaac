// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"testing"
	"time"
)

func TestDecideBucket(t *testing.T) {
	type take struct {
		after time.Duration // the start
		wait  time.Duration // 0: a token is taken
	}
	for name, tt := range map[string]struct {
		rate  float64
		takes []take
	}{
		"a slow rate has one":         {0.5, []take{{0, 0}, {0, 2 * time.Second}, {time.Second, time.Second}, {2 * time.Second, 0}}},
		"a second's worth at once":    {2, []take{{0, 0}, {0, 0}, {0, 500 * time.Millisecond}}},
		"it fills no further":         {2, []take{{0, 0}, {time.Hour, 0}, {time.Hour, 0}, {time.Hour, 500 * time.Millisecond}}},
		"parts of a token add up":     {2, []take{{0, 0}, {0, 0}, {250 * time.Millisecond, 250 * time.Millisecond}, {500 * time.Millisecond, 0}}},
		"a clock that goes back":      {1, []take{{0, 0}, {-time.Minute, time.Second}, {-59 * time.Second, 0}}},
		"less than a nanosecond left": {3, []take{{0, 0}, {0, 0}, {0, 0}, {333_333_333, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBucket(tt.rate, start)
			for i, one := range tt.takes {
				var wait time.Duration
				if b, wait = b.take(tt.rate, start.Add(one.after)); wait != one.wait {
					t.Errorf("take %d: wait %s, want %s", i, wait, one.wait)
				}
			}
		})
	}
}

func TestDecideWindow(t *testing.T) {
	for rate, want := range map[float64][2]int{20: {20, 1}, 1.5: {1, 1}, 1: {1, 1}, 0.5: {1, 2}, 0.4: {1, 3}} {
		if quota, seconds := window(rate); quota != want[0] || seconds != want[1] {
			t.Errorf("%v/s: %d in %d s, want %d in %d s", rate, quota, seconds, want[0], want[1])
		}
	}
}

func TestDecideWithin(t *testing.T) {
	for _, tt := range []struct {
		used, limit int32
		want        bool
	}{{0, 1, true}, {1, 1, false}, {2, 1, false}, {7, 0, true}} {
		if got := within(tt.used, tt.limit); got != tt.want {
			t.Errorf("%d of %d: %t", tt.used, tt.limit, got)
		}
	}
	if got := share(20, 0); got != 20 {
		t.Errorf("a replica that knows of none has %v of 20", got)
	}
}
