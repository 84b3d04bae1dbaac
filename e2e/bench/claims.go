// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

const (
	pairCount          = 10
	ceilingConcurrency = 16
	keyedShare         = 0.5 // of the raw ceiling
	// rest lets every watcher digest a reset, of either arm, before anything is timed.
	rest = 500 * time.Millisecond
)

// shares of the raw ceiling at which latency is measured.
var shares = []float64{0.25, 0.5, 0.8}

// comparison measures two arms against each other.
type comparison struct {
	raw, hub arm
	log      io.Writer
}

// pairs interleaves legs as raw, hub, hub, raw, … so that a drift of the machine falls on both arms alike.
func (c comparison) pairs(ctx context.Context, what string, run func(ctx context.Context, a arm, seed uint64) leg) ([]pair, error) {
	begin := time.Now()
	out := make([]pair, pairCount)
	for i := range out {
		order := []arm{c.raw, c.hub}
		if i%2 == 1 {
			order = []arm{c.hub, c.raw}
		}
		for _, a := range order {
			if err := a.reset(ctx); err != nil {
				return nil, fmt.Errorf("%s arm: %w", a.name, err)
			}
			sleepUntil(time.Now().Add(rest))
			before, err := readCPU()
			if err != nil {
				return nil, err
			}
			l := run(ctx, a, uint64(i))
			after, err := readCPU()
			if err != nil {
				return nil, err
			}
			l.cpu = after.since(before)
			if a.name == c.raw.name {
				out[i].raw = l
			} else {
				out[i].hub = l
			}
		}
		fmt.Fprintf(c.log, "  %s: pair %d of %d, raw p50 %.1f ms, %s p50 %.1f ms (%.0f s)\n", what, i+1, pairCount,
			millis(quantile(out[i].raw.latencies, 0.5)), c.hub.name, millis(quantile(out[i].hub.latencies, 0.5)), time.Since(begin).Seconds())
	}
	return out, ctx.Err()
}

// ceilings finds how many operations a second each arm reaches in a closed loop. A target of zero is not judged.
func (c comparison) ceilings(ctx context.Context, target float64) (rawRate float64, results []result, err error) {
	pairs, err := c.pairs(ctx, "ceiling beside "+c.raw.name, func(ctx context.Context, a arm, _ uint64) leg {
		return closedLoop(ctx, ceilingConcurrency, a.do)
	})
	if err != nil {
		return 0, nil, err
	}
	var raw, hub, ratios []float64
	for _, p := range pairs {
		raw, hub, ratios = append(raw, p.raw.rate), append(hub, p.hub.rate), append(ratios, p.hub.rate/p.raw.rate)
	}
	ratio, bounds := medianWithInterval(ratios)
	rawAll, hubAll := pool(pairs)
	limit := median(raw)
	claim := result{Name: "claim ceiling", Value: round(median(hub)), Unit: "1/s"}.withLatencies(hubAll.latencies, hubAll.errors)
	if target > 0 {
		claim = claim.against(limit, ratio, bounds, target, false)
	} else {
		claim.Name += ", beside " + c.raw.name
		claim.Limit, claim.Ratio = ptr(round(limit)), ptr(round(ratio))
	}
	results = []result{
		result{Name: c.raw.name + " patch ceiling", Value: round(limit), Unit: "1/s"}.withLatencies(rawAll.latencies, rawAll.errors),
		claim,
	}
	return limit, append(results, cpuResults(c.raw.name, pairs)...), nil
}

// latency compares the arms at a rate. Targets of zero are not judged.
func (c comparison) latency(ctx context.Context, share, ceiling, target50, target99 float64) ([]result, error) {
	rate := share * ceiling
	label := fmt.Sprintf("%s at %.0f%% (%.0f/s)", c.hub.name, share*100, rate)
	pairs, err := c.pairs(ctx, label, func(ctx context.Context, a arm, seed uint64) leg {
		return openLoop(ctx, stockSize, rate, seed, a.do)
	})
	if err != nil {
		return nil, err
	}
	raw, hub := pool(pairs)
	p50, p50Bounds := ratioOf(pairs, 0.5)
	p99, p99Bounds := pooledRatioOf(pairs, 0.99)
	results := []result{
		result{Name: "raw patch p50, beside " + label, Value: millis(quantile(raw.latencies, 0.5)), Unit: "ms"}.withLatencies(raw.latencies, raw.errors),
		result{Name: "claim p50, " + label, Value: millis(quantile(hub.latencies, 0.5)), Unit: "ms"}.withLatencies(hub.latencies, hub.errors),
		result{Name: "claim p99, " + label, Value: millis(quantile(hub.latencies, 0.99)), Unit: "ms"}.withLatencies(hub.latencies, hub.errors),
		{Name: "achieved rate, " + label, Value: round(hub.rate), Unit: "1/s", Limit: ptr(round(rate)), Ratio: ptr(round(hub.rate / rate))},
	}
	if target50 > 0 {
		results[1] = results[1].against(millis(quantile(raw.latencies, 0.5)), p50, p50Bounds, target50, true)
		results[2] = results[2].against(millis(quantile(raw.latencies, 0.99)), p99, p99Bounds, target99, true)
	} else {
		results[1].Limit, results[1].Ratio = ptr(millis(quantile(raw.latencies, 0.5))), ptr(round(p50))
		results[2].Limit, results[2].Ratio = ptr(millis(quantile(raw.latencies, 0.99))), ptr(round(p99))
	}
	return results, nil
}

// burst sends the whole stock at once.
func (c comparison) burst(ctx context.Context) ([]result, error) {
	pairs, err := c.pairs(ctx, "burst", func(ctx context.Context, a arm, _ uint64) leg {
		return closedLoop(ctx, stockSize, a.do)
	})
	if err != nil {
		return nil, err
	}
	raw, hub := pool(pairs)
	ratio, _ := ratioOf(pairs, 1)
	r := result{Name: fmt.Sprintf("burst of %d claims, last answered", stockSize), Value: millis(quantile(hub.latencies, 1)), Unit: "ms",
		Limit: ptr(millis(quantile(raw.latencies, 1))), Ratio: ptr(round(ratio))}
	return []result{r.withLatencies(hub.latencies, hub.errors)}, nil
}

// pool puts all legs of each arm together.
func pool(pairs []pair) (raw, hub leg) {
	for _, p := range pairs {
		raw.latencies, raw.errors = append(raw.latencies, p.raw.latencies...), raw.errors+p.raw.errors
		hub.latencies, hub.errors = append(hub.latencies, p.hub.latencies...), hub.errors+p.hub.errors
		hub.rate += p.hub.rate / float64(len(pairs))
	}
	return raw, hub
}

func ptr(v float64) *float64 { return &v }
