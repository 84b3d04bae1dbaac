// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// operation is one request of an arm; i counts from 0 within a leg.
type operation func(ctx context.Context, i int) error

// operationTimeout bounds one request: something that takes longer is an error, not a latency.
const operationTimeout = 20 * time.Second

// openLoop sends n requests at Poisson arrivals of the given rate, whether or not earlier ones have been answered, and
// times each from when it should have been sent: a server that stalls is charged for everyone it kept waiting.
func openLoop(ctx context.Context, n int, rate float64, seed uint64, do operation) leg {
	random := rand.New(rand.NewPCG(seed, 7))
	offsets := make([]time.Duration, n)
	var at float64
	for i := range offsets {
		at += random.ExpFloat64() / rate
		offsets[i] = time.Duration(at * float64(time.Second))
	}
	latencies := make([]time.Duration, n)
	failed := make([]bool, n)
	var wait sync.WaitGroup
	begin := time.Now()
	for i, offset := range offsets {
		sleepUntil(begin.Add(offset))
		wait.Go(func() {
			opCtx, cancel := context.WithTimeout(ctx, operationTimeout)
			defer cancel()
			failed[i] = do(opCtx, i) != nil
			latencies[i] = time.Since(begin.Add(offset))
		})
	}
	wait.Wait()
	return collect(latencies, failed, time.Since(begin))
}

// closedLoop keeps a fixed number of requests under way until the stock is used up: it finds the ceiling.
func closedLoop(ctx context.Context, concurrency int, do operation) leg {
	const n = stockSize
	latencies := make([]time.Duration, n)
	failed := make([]bool, n)
	var next atomic.Int64
	var wait sync.WaitGroup
	begin := time.Now()
	for range concurrency {
		wait.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				start := time.Now()
				opCtx, cancel := context.WithTimeout(ctx, operationTimeout)
				failed[i] = do(opCtx, i) != nil
				cancel()
				latencies[i] = time.Since(start)
			}
		})
	}
	wait.Wait()
	return collect(latencies, failed, time.Since(begin))
}

func collect(latencies []time.Duration, failed []bool, took time.Duration) leg {
	var out leg
	for i, latency := range latencies {
		if failed[i] {
			out.errors++
			continue
		}
		out.latencies = append(out.latencies, latency)
	}
	out.rate = float64(len(out.latencies)) / took.Seconds()
	return out
}

// sleepUntil waits for a point in time. Being late is charged to the request, in both arms alike.
func sleepUntil(t time.Time) {
	if d := time.Until(t); d > 0 {
		timer := time.NewTimer(d)
		<-timer.C
	}
}
