// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"navix.sh/atoll/e2e/load"
)

// server serves one request at a time, each in the same time.
func server(service time.Duration) load.Operation {
	slot := make(chan struct{}, 1)
	return func(context.Context, int) error {
		slot <- struct{}{}
		time.Sleep(service)
		<-slot
		return nil
	}
}

// A server that needs 10 ms and is sent 200 requests a second falls behind by 5 ms with each: the last of 100 waits for half a
// second. A closed loop never sees more than the service time.
func TestTimeInAQueueCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, service = 100, 10 * time.Millisecond
		slow := load.Open(t.Context(), n, 200, 1, server(service))
		if slow.Took < n*service {
			t.Fatalf("took %s: the server is not what the test thinks", slow.Took)
		}
		if p50, last := load.Quantile(slow.Latencies, 0.5), load.Quantile(slow.Latencies, 1); p50 < 100*time.Millisecond ||
			last < 350*time.Millisecond {
			t.Errorf("p50 %s, max %s: the time in the queue was left out", p50, last)
		}
		if rate := slow.Rate(); math.Abs(rate-100) > 2 {
			t.Errorf("%.1f/s of a server that can 100/s", rate)
		}
		if burst := load.Burst(t.Context(), n, server(service)); load.Quantile(burst.Latencies, 1) != n*service {
			t.Errorf("the last of a burst: %s", load.Quantile(burst.Latencies, 1))
		}
		if closed := load.Closed(t.Context(), n, 1, server(service)); load.Quantile(closed.Latencies, 1) != service || closed.Took != n*service {
			t.Errorf("closed loop: %s, took %s", load.Quantile(closed.Latencies, 1), closed.Took)
		}
	})
}

// Arrivals do not wait for responses, come at the rate that was asked for, and are the same for the same seed.
func TestArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, rate = 2000, 100.0
		arrivals := func(seed uint64) []time.Duration {
			began, at := time.Now(), make([]time.Duration, n)
			load.Open(t.Context(), n, rate, seed, func(_ context.Context, i int) error {
				at[i] = time.Since(began)
				time.Sleep(10 * time.Second)
				return nil
			})
			return at
		}
		first, again, other := arrivals(1), arrivals(1), arrivals(2)
		if first[n-1] != again[n-1] || first[n-1] == other[n-1] {
			t.Errorf("seeds 1, 1, 2: %s, %s, %s", first[n-1], again[n-1], other[n-1])
		}
		var sum, squares float64
		for i := 1; i < n; i++ {
			gap := (first[i] - first[i-1]).Seconds()
			sum, squares = sum+gap, squares+gap*gap
		}
		mean := sum / (n - 1)
		// The gaps of Poisson arrivals are exponential: their standard deviation is their mean.
		if deviation := math.Sqrt(squares/(n-1) - mean*mean); math.Abs(mean*rate-1) > 0.1 || math.Abs(deviation/mean-1) > 0.1 {
			t.Errorf("mean gap %.4f s, deviation %.4f s", mean, deviation)
		}
	})
}

func TestFailuresAreTheSlowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		r := load.Burst(t.Context(), 10, func(ctx context.Context, i int) error {
			switch i {
			case 3:
				return refused // at once, which is not fast
			case 4:
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		if r.Failed != 2 || !errors.Is(r.Err, refused) || r.Latencies[3] != load.Timeout || r.Latencies[4] != load.Timeout ||
			r.Latencies[5] != 0 {
			t.Errorf("%+v", r)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r = load.Open(ctx, 1000, 100, 1, func(context.Context, int) error { return nil })
		if r.Took > time.Second || r.Failed < 800 || r.Failed > 950 {
			t.Errorf("of 1000 requests in ten seconds, ended after one: %d failed, took %s", r.Failed, r.Took)
		}
	})
}

func TestQuantileIsNearestRank(t *testing.T) {
	var samples []time.Duration
	for i := 100; i >= 1; i-- {
		samples = append(samples, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		if got := load.Quantile(samples, q); got != want {
			t.Errorf("quantile %g: %d, want %d", q, got, want)
		}
	}
	if load.Quantile(nil, 0.5) != 0 {
		t.Error("no samples")
	}
}
