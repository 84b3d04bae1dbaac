// SPDX-License-Identifier: Apache-2.0

// Package load sends requests to a server and reports the result of each.
//
// Latency is measured with an open loop: arrivals do not depend on responses, and each request is timed from its scheduled
// send, so a stalled server is charged for every delayed request. A closed loop, where each caller waits for a response before
// it sends again, only finds the ceiling. A failed request counts as the slowest.
package load

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/wallclock"
)

// Operation is one request. i counts from 0.
type Operation func(ctx context.Context, i int) error

// Timeout bounds a request, and is the least latency of a failed one.
const Timeout = 20 * time.Second

// Result is the result of the requests.
type Result struct {
	Latencies []time.Duration // of every request, by its number
	Failed    int
	Err       error         // of the first failed request, by its number
	Took      time.Duration // from the start to the last response
}

// Rate is the number of successful requests a second.
func (r Result) Rate() float64 { return float64(len(r.Latencies)-r.Failed) / r.Took.Seconds() }

// Open sends n requests with Poisson arrivals at a rate, in requests a second. Equal seeds give equal arrivals. When ctx ends,
// unsent requests fail.
func Open(ctx context.Context, n int, rate float64, seed uint64, do Operation) Result {
	random := rand.New(rand.NewPCG(seed, 7))
	offsets := make([]time.Duration, n)
	at := 0.0
	for i := range offsets {
		at += random.ExpFloat64() / rate
		offsets[i] = time.Duration(at * float64(time.Second))
	}
	return open(ctx, offsets, do)
}

// Burst sends n requests at once.
func Burst(ctx context.Context, n int, do Operation) Result {
	return open(ctx, make([]time.Duration, n), do)
}

// open sends one request at each offset from the start. Offsets do not decrease.
func open(ctx context.Context, offsets []time.Duration, do Operation) Result {
	r := newRecorder(len(offsets))
	var all sync.WaitGroup
	for i, offset := range offsets {
		Sleep(ctx, time.Until(r.began.Add(offset)))
		all.Go(func() { r.send(ctx, i, r.began.Add(offset), do) })
	}
	all.Wait()
	return r.result()
}

// Closed sends n requests, with a constant number in flight.
func Closed(ctx context.Context, n, concurrency int, do Operation) Result {
	r := newRecorder(n)
	var next atomic.Int64
	var all sync.WaitGroup
	for range concurrency {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				r.send(ctx, i, time.Now(), do)
			}
		})
	}
	all.Wait()
	return r.result()
}

type recorder struct {
	began     time.Time
	latencies []time.Duration
	errs      []error
}

func newRecorder(n int) *recorder {
	return &recorder{began: time.Now(), latencies: make([]time.Duration, n), errs: make([]error, n)}
}

func (r *recorder) send(ctx context.Context, i int, scheduled time.Time, do Operation) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if r.errs[i] = context.Cause(ctx); r.errs[i] == nil {
		r.errs[i] = do(ctx, i)
	}
	r.latencies[i] = time.Since(scheduled)
	if r.errs[i] != nil {
		r.latencies[i] = max(r.latencies[i], Timeout)
	}
}

func (r *recorder) result() Result {
	out := Result{Latencies: r.latencies, Took: time.Since(r.began)}
	for _, err := range r.errs {
		if err == nil {
			continue
		}
		if out.Failed++; out.Err == nil {
			out.Err = err
		}
	}
	return out
}

// Sleep returns after d, or earlier when ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	if d > 0 {
		_ = wallclock.Sleep(ctx, clock.RealClock{}, d)
	}
}

// Quantile is the nearest-rank quantile of samples in any order, and 0 without samples.
func Quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}
