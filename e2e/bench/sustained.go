// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"navix.sh/atoll/e2e/load"
)

const (
	// sustainedRate is the rate of cycles that a pool of cycledPods shall hold on two processors, cycleCPU what a cycle may take of them
	// in milliseconds, all programs together, and cyclePatience how long a claim may take at a rate that is held.
	sustainedRate, cycleCPU = 40.0, 60.0
	cyclePatience           = time.Second
)

// sustained claims and releases from one pool, so that every Pod is replaced, at growing rates; and then for long at the highest rate that
// was held. It reports the processor time of a cycle: claim, release and replacement.
func (b *bench) sustained(ctx context.Context, add func(...result)) error {
	_, pool, err := b.newHubPool(ctx)
	if err != nil {
		return err
	}
	held := 0.0
	for _, rate := range []float64{10, 20, 30, sustainedRate} {
		l, err := b.cycles(ctx, pool, rate, b.size.step)
		if err != nil {
			return err
		}
		if rate == 10 {
			add(cpuOfCycle(rate, l).atMost(cycleCPU))
		}
		if !holds(l) {
			break
		}
		held = rate
	}
	for ; held > 0; held -= 10 { // it was held for a step alone
		l, err := b.cycles(ctx, pool, held, b.size.sustain)
		if err != nil {
			return err
		}
		if holds(l) {
			at := fmt.Sprintf(" at %g/s for %s", held, b.size.sustain)
			add(cpuOfCycle(held, l), latency("claim p50"+at, 0.5, []leg{l}), latency("claim p99"+at, 0.99, []leg{l}))
			break
		}
	}
	add(measured("rate that a pool of 100 Pods holds for "+b.size.sustain.String(), "1/s", []float64{held}).atLeast(sustainedRate))
	return nil
}

func holds(l leg) bool { return l.Failed == 0 && load.Quantile(l.Latencies, 0.99) <= cyclePatience }

func cpuOfCycle(rate float64, l leg) result {
	return measured(fmt.Sprintf("CPU of a cycle (claim, release, replacement) at %g/s, everything together", rate), "ms",
		[]float64{sum(perRequest(l))})
}
