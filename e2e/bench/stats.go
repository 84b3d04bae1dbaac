// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"

	"navix.sh/atoll/e2e/load"
)

// estimate is a median and its 95 % interval.
type estimate struct{ value, low, high float64 }

// medianOf bounds the median by order statistics, which assumes no distribution: the k-th smallest and the k-th greatest value,
// with the greatest k for 95 %. With fewer than six values these are the extremes, and contain the median less often. Source:
// David and Nagaraja, Order Statistics (2003), section 7.1.
func medianOf(values []float64) estimate {
	n := len(values)
	if n == 0 {
		return estimate{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	k := rank(n)
	return estimate{value: (sorted[(n-1)/2] + sorted[n/2]) / 2, low: sorted[k-1], high: sorted[n-k]}
}

// rank is the greatest k such that fewer than k of n fair coins show heads in at most 2.5 % of cases; at least 1.
func rank(n int) int {
	k, p := 0, math.Pow(0.5, float64(n))
	for below := p; below <= 0.025; below += p {
		k++
		p *= float64(n-k+1) / float64(k)
	}
	return max(k, 1)
}

// metric returns the compared figure of a leg.
type metric func(leg) float64

func quantile(q float64) metric {
	return func(l leg) float64 { return millis(load.Quantile(l.Latencies, q)) }
}

func rate(l leg) float64 { return l.Rate() }

func each(legs []leg, of metric) []float64 {
	values := make([]float64, 0, len(legs))
	for _, l := range legs {
		values = append(values, of(l))
	}
	return values
}

// measured is a figure without a limit.
func measured(name, unit string, values []float64) result {
	m := medianOf(values)
	r := result{Name: name, Unit: unit, Value: round(m.value), Samples: len(values)}
	if len(values) > 1 {
		r.Low, r.High = ptr(m.low), ptr(m.high)
	}
	sorted := slices.Sorted(slices.Values(values))
	at := func(q float64) float64 { return round(sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]) }
	if len(sorted) > 0 {
		r.P50, r.P90, r.P99, r.Max = at(0.5), at(0.9), at(0.99), at(1)
	}
	return r
}

// paired is a figure with its limit, and the ratio of each pair.
func paired(name, unit string, values, limits, ratios []float64) result {
	r, ratio := measured(name, unit, values), medianOf(ratios)
	r.Limit, r.Ratio, r.Low, r.High = ptr(medianOf(limits).value), ptr(ratio.value), ptr(ratio.low), ptr(ratio.high)
	return r
}

// compare compares a figure of legs with that of their paired legs.
func compare(name, unit string, of metric, legs, limits []leg) result {
	values, limit := each(legs, of), each(limits, of)
	ratios := make([]float64, 0, len(legs))
	for i := range values {
		ratios = append(ratios, values[i]/limit[i])
	}
	return paired(name, unit, values, limit, ratios).requests(legs)
}

// latency is a quantile of legs without a comparison.
func latency(name string, q float64, legs []leg) result {
	return measured(name, "ms", each(legs, quantile(q))).requests(legs)
}

// requests sets the distribution from the latencies of all legs, in milliseconds.
func (r result) requests(legs []leg) result {
	all := leg{}
	for _, l := range legs {
		all.Latencies = append(all.Latencies, l.Latencies...)
		all.Failed += l.Failed
	}
	at := func(q float64) float64 { return quantile(q)(all) }
	r.Samples, r.Errors = len(all.Latencies), all.Failed
	r.P50, r.P90, r.P99, r.Max = at(0.5), at(0.9), at(0.99), at(1)
	return r
}

// count is a figure that does not depend on the machine's speed.
func count(name, unit string, value float64, samples int) result {
	return result{Name: name, Unit: unit, Value: round(value), Samples: samples, counted: true}
}

// mostErrors: one in so many requests may fail.
const mostErrors = 100

// withTarget compares the ratio with a target, or the value if there is no ratio.
func (r result) withTarget(sign string, target float64) result {
	value, unit := r.Value, " "+r.Unit
	if r.Ratio != nil {
		value, unit = *r.Ratio, "x"
	}
	met := map[string]bool{"<=": value <= target, ">=": value >= target, "=": value == target}[sign]
	r.Target = fmt.Sprintf("%s %g%s", sign, target, unit)
	r.Met = new(met && r.Errors*mostErrors <= r.Samples)
	return r
}

func (r result) atMost(target float64) result  { return r.withTarget("<=", target) }
func (r result) atLeast(target float64) result { return r.withTarget(">=", target) }
func (r result) exactly(target float64) result { return r.withTarget("=", target) }
