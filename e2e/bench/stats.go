// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// quantile is the nearest-rank quantile; 0 without samples.
func quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// interval is a bootstrap interval.
type interval struct{ low, high float64 }

const resamples = 1000

// bootstrap resamples n pairs with replacement, computes the statistic of every resample, and returns the middle 90 %.
// Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), percentile method. The seed is fixed, so that the
// same measurements always give the same verdict.
func bootstrap(n int, statistic func(pick []int) float64) interval {
	random := rand.New(rand.NewPCG(1, 2))
	pick := make([]int, n)
	values := make([]float64, 0, resamples)
	for range resamples {
		for i := range pick {
			pick[i] = random.IntN(n)
		}
		values = append(values, statistic(pick))
	}
	slices.Sort(values)
	return interval{low: values[resamples/20], high: values[resamples-1-resamples/20]}
}

// pair is one leg of each arm, measured one right after the other.
type pair struct{ raw, hub leg }

// leg is what one stretch of load on one arm gave.
type leg struct {
	cpu       cpuTimes
	latencies []time.Duration
	errors    int
	rate      float64 // achieved, per second
}

// ratioOf is the median over pairs of hub's quantile over raw's.
func ratioOf(pairs []pair, q float64) (float64, interval) {
	ratios := make([]float64, 0, len(pairs))
	for _, p := range pairs {
		ratios = append(ratios, float64(quantile(p.hub.latencies, q))/float64(quantile(p.raw.latencies, q)))
	}
	return medianWithInterval(ratios)
}

// pooledRatioOf compares quantiles of all samples together: a p99 of one leg alone would be its few slowest samples.
func pooledRatioOf(pairs []pair, q float64) (float64, interval) {
	statistic := func(pick []int) float64 {
		var raw, hub []time.Duration
		for _, i := range pick {
			raw = append(raw, pairs[i].raw.latencies...)
			hub = append(hub, pairs[i].hub.latencies...)
		}
		return float64(quantile(hub, q)) / float64(quantile(raw, q))
	}
	all := make([]int, len(pairs))
	for i := range all {
		all[i] = i
	}
	return statistic(all), bootstrap(len(pairs), statistic)
}

func medianWithInterval(values []float64) (float64, interval) {
	return median(values), bootstrap(len(values), func(pick []int) float64 {
		sample := make([]float64, 0, len(pick))
		for _, i := range pick {
			sample = append(sample, values[i])
		}
		return median(sample)
	})
}
