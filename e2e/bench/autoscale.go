// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
)

// autoscaling runs the simulator's own benchmarks: there is nothing to compare a decision with, so no target.
func autoscaling(ctx context.Context) ([]result, error) {
	out, err := runBenchmarks(ctx, "pkg/simulate", ".", "1s", 3)
	if err != nil {
		return nil, err
	}
	var results []result
	for _, row := range []struct{ benchmark, unit, name, shown string }{
		{"BenchmarkDecide/groups=8", "ns/Env", "autoscaling decision, 32 members in 8 groups, 640 Pods", "ns"},
		{"BenchmarkDecide/groups=8", "allocs/op", "allocations of that", "1/decision"},
		{"BenchmarkDecide/groups=1", "ns/Env", "the same in one group", "ns"},
		{"BenchmarkDay", "days/s", "days simulated, 50 Pods and 4100 claims each", "1/s"},
	} {
		metrics, err := parseBenchmark(out, row.benchmark)
		if err != nil {
			return nil, err
		}
		values := metrics[row.unit]
		if len(values) == 0 {
			return nil, fmt.Errorf("%s does not report %s:\n%s", row.benchmark, row.unit, out)
		}
		results = append(results, result{Name: row.name, Value: round(median(values)), Unit: row.shown, Samples: len(values)})
	}
	return results, nil
}
