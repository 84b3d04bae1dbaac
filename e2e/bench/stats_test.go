// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestQuantileIsNearestRank(t *testing.T) {
	var samples []time.Duration
	for i := 100; i >= 1; i-- {
		samples = append(samples, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := quantile(samples, q); got != want {
			t.Errorf("quantile %g: %d, want %d", q, got, want)
		}
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("no samples")
	}
}

func pairsOf(ratio float64, n int) []pair {
	pairs := make([]pair, n)
	for i := range pairs {
		for k := 1; k <= 50; k++ {
			base := time.Duration(k) * time.Millisecond
			pairs[i].raw.latencies = append(pairs[i].raw.latencies, base)
			pairs[i].hub.latencies = append(pairs[i].hub.latencies, time.Duration(float64(base)*ratio))
		}
	}
	return pairs
}

// A gate that cannot fail would be worse than none.
func TestTheGateFailsWhenTheTargetIsMissed(t *testing.T) {
	for _, tc := range []struct {
		ratio float64
		want  bool
	}{{1.4, true}, {1.6, false}} {
		ratio, bounds := ratioOf(pairsOf(tc.ratio, 10), 0.5)
		pooled, pooledBounds := pooledRatioOf(pairsOf(tc.ratio, 10), 0.99)
		r := result{}.against(1, ratio, bounds, 1.5, true)
		p := result{}.against(1, pooled, pooledBounds, 1.5, true)
		if *r.Met != tc.want || *p.Met != tc.want {
			t.Errorf("ratio %g: met %v and %v, want %v", tc.ratio, *r.Met, *p.Met, tc.want)
		}
	}
	if r := (result{}).against(1, 0.7, interval{0.6, 0.75}, 0.8, false); *r.Met {
		t.Error("0.7 of the ceiling passed for 0.8")
	}
	if r := (result{Value: 2}).exactly(1); *r.Met {
		t.Error("2 writes passed for 1")
	}
	var d document
	d.add([]result{
		result{Name: "few failed"}.withLatencies(make([]time.Duration, 99), 1).exactly(0),
		result{Name: "all failed"}.withLatencies(nil, 100).exactly(0),
		result{Name: "2 % failed, of what has no target"}.withLatencies(make([]time.Duration, 98), 2),
	})
	if got := strings.Join(d.missed(), "; "); got != "all failed; 2 % failed, of what has no target" {
		t.Errorf("missed: %s", got)
	}
}

func TestOpenLoopChargesAStallToEveryoneItKeepsWaiting(t *testing.T) {
	release := make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() { close(release) })
	l := openLoop(context.Background(), 10, 1000, 1, func(_ context.Context, i int) error {
		<-release
		if i == 9 {
			return errors.New("refused")
		}
		return nil
	})
	if l.errors != 1 || len(l.latencies) != 9 {
		t.Fatalf("%d errors, %d samples", l.errors, len(l.latencies))
	}
	if p50 := quantile(l.latencies, 0.5); p50 < 80*time.Millisecond {
		t.Errorf("p50 %s: requests sent during a stall of 100 ms must be charged for it", p50)
	}
}
