// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	sustainedPods = 100
	// sustainedRate is the rate of cycles that a pool of so many Pods shall hold on two processors, cycleCPU what a cycle may take of them
	// in milliseconds, all programs together, and cyclePatience how long a claim may take at a rate that is held.
	sustainedRate, cycleCPU = 40.0, 60.0
	cyclePatience           = time.Second
)

// sustained claims and releases from one pool, so that every Pod is replaced, at growing rates; and then for long at the highest rate that
// was held. It reports the processor time of a cycle: claim, release and replacement.
func (b *bench) sustained(ctx context.Context, add func(...result)) error {
	p, atoll, err := b.newStack(ctx, plane.Options{})
	if err != nil {
		return err
	}
	hub, err := atoll.HubClient()
	if err != nil {
		return err
	}
	if err := stockEnv(sustainedPods).Apply(ctx, p); err != nil {
		return err
	}
	held := 0.0
	for _, rate := range []float64{10, 20, 30, sustainedRate} {
		l, err := b.cycles(ctx, hub, rate, b.size.step)
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
		l, err := b.cycles(ctx, hub, held, b.size.sustain)
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

// cycles claims at a rate, and releases each sandbox once it is returned. Claims alone are timed. It ends when the pool is full again.
func (b *bench) cycles(ctx context.Context, hub *stack.Client, rate float64, d time.Duration) (leg, error) {
	full := func(ctx context.Context) error {
		ready, err := hub.ReadyIdle(ctx, namespace, envName)
		return wait.If(ready[clusterID] == sustainedPods, fmt.Sprintf("%v of %d, %v", ready, sustainedPods, err))
	}
	if err := wait.Until(ctx, patience, "the pool to be full", full); err != nil {
		return leg{}, err
	}
	var released sync.WaitGroup
	var mu sync.Mutex
	var failed error
	l, err := arm{name: "cycles", run: func(ctx context.Context, seed uint64) (leg, error) {
		result := load.Open(ctx, int(rate*d.Seconds()), rate, seed, func(ctx context.Context, _ int) error {
			sandbox, err := hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Namespace: namespace, Env: envName})
			if err != nil {
				return err
			}
			released.Go(func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
				defer cancel()
				if err := hub.Release(ctx, sandbox.GetId()); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = err
				}
			})
			return nil
		})
		released.Wait()
		return leg{Result: result}, wait.Until(ctx, patience, "the pool to be full again", full)
	}}.leg(ctx, uint64(rate))
	if err == nil && failed != nil {
		err = fmt.Errorf("releasing a sandbox: %w", failed)
	}
	b.logf("cycles at %g/s for %s: p50 %.4g ms, p99 %.4g ms, %d failed, %.1f ms of CPU each: %v", rate, d, quantile(0.5)(l), quantile(0.99)(l),
		l.Failed, sum(perRequest(l)), perRequest(l))
	return l, err
}
