// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
	"time"

	"navix.sh/atoll/e2e/load"
)

func TestMedianAndInterval(t *testing.T) {
	upTo := func(n int) (values []float64) {
		for i := n; i >= 1; i-- {
			values = append(values, float64(i))
		}
		return values
	}
	for name, tc := range map[string]struct {
		values []float64
		want   estimate
	}{
		"one":                  {upTo(1), estimate{1, 1, 1}},
		"two":                  {upTo(2), estimate{1.5, 1, 2}},
		"five are too few":     {upTo(5), estimate{3, 1, 5}},
		"six are enough":       {upTo(6), estimate{3.5, 1, 6}}, // 96.9 %
		"eight":                {upTo(8), estimate{4.5, 1, 8}}, // the next ones: 93.0 %
		"nine":                 {upTo(9), estimate{5, 2, 8}},   // 96.1 %
		"ten":                  {upTo(10), estimate{5.5, 2, 9}},
		"thirty":               {upTo(30), estimate{15.5, 10, 21}}, // 95.7 %
		"two hundred":          {upTo(200), estimate{100.5, 86, 115}},
		"an outlier is no sum": {[]float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1000}, estimate{1, 1, 1}},
	} {
		before := slices.Clone(tc.values)
		if got := medianOf(tc.values); got != tc.want || !slices.Equal(before, tc.values) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// legsOf are legs with these medians, in milliseconds.
func legsOf(medians ...float64) (legs []leg) {
	for _, m := range medians {
		l := leg{}
		for _, factor := range []float64{0.5, 1, 2} {
			l.Latencies = append(l.Latencies, time.Duration(m*factor*float64(time.Millisecond)))
		}
		legs = append(legs, l)
	}
	return legs
}

func TestVerdict(t *testing.T) {
	p50 := quantile(0.5)
	slow := []float64{10, 20, 30, 40, 50, 60, 70, 80, 90, 100} // a machine that drifts
	times := func(factor float64) []leg {
		var out []float64
		for _, v := range slow {
			out = append(out, v*factor)
		}
		return legsOf(out...)
	}
	failed := func(n, of int) []leg {
		l := leg{Result: load.Result{Latencies: make([]time.Duration, of), Failed: n}}
		return []leg{l}
	}
	for name, tc := range map[string]struct {
		result result
		ratio  float64
		low    float64
		high   float64
		met    bool
	}{
		"pair by pair, below": {compare("", "ms", p50, times(1.4), times(1)).atMost(1.5), 1.4, 1.4, 1.4, true},
		"pair by pair, above": {compare("", "ms", p50, times(1.6), times(1)).atMost(1.5), 1.6, 1.6, 1.6, false},
		"at the target":       {compare("", "ms", p50, times(1.5), times(1)).atMost(1.5), 1.5, 1.5, 1.5, true},
		"the median counts, high": {paired("", "", slow, slow, []float64{1, 1, 1, 1, 1.6, 1.6, 1.6, 1.6, 1.6, 1.6}).atMost(1.5), 1.6, 1,
			1.6, false},
		"the median counts, low":        {paired("", "", slow, slow, []float64{1, 1, 1, 1, 1, 1, 9, 9, 9, 9}).atMost(1.5), 1, 1, 9, true},
		"a lower bound":                 {paired("", "", slow, slow, []float64{0.7}).atLeast(0.8), 0.7, 0.7, 0.7, false},
		"a lower bound that is reached": {paired("", "", slow, slow, []float64{0.9}).atLeast(0.8), 0.9, 0.9, 0.9, true},
		"a value":                       {measured("", "ms", slow).atMost(50), 0, 20, 90, false},
		"a value that is small enough":  {measured("", "ms", slow).atMost(55), 0, 20, 90, true},
		"one in a hundred failed":       {measured("", "ms", slow).requests(failed(1, 100)).atMost(55), 0, 20, 90, true},
		"two in a hundred failed":       {measured("", "ms", slow).requests(failed(2, 100)).atMost(55), 0, 20, 90, false},
	} {
		var ratio float64
		if r := tc.result.Ratio; r != nil {
			ratio = *r
		}
		if ratio != tc.ratio || *tc.result.Low != tc.low || *tc.result.High != tc.high || *tc.result.Met != tc.met {
			t.Errorf("%s: ratio %g in [%g, %g], met %t; want %g in [%g, %g], %t", name, ratio, *tc.result.Low, *tc.result.High, *tc.result.Met,
				tc.ratio, tc.low, tc.high, tc.met)
		}
	}
	if r := count("", "writes", 2, 1).exactly(1); *r.Met {
		t.Error("2 writes passed for 1")
	}
}
