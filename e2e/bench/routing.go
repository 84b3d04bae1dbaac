// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// routing runs the fleet's own benchmark, which sees what only the hub may import, and judges its figures. Every run of
// it measures the three arms in turns, and so is one pair.
func routing(ctx context.Context) ([]result, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=^BenchmarkRoute$", "-benchtime=1s", "-count=10", "navix.sh/atoll/hub/internal/fleet")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("benchmarking the fleet: %w\n%s", err, out)
	}
	metrics, err := parseBenchmark(out, "BenchmarkRoute")
	if err != nil {
		return nil, err
	}
	for _, unit := range []string{"bare-ns", "pick-ns", "rwmutex-ns", "pick/bare", "pick-allocs", "segments/s"} {
		if len(metrics[unit]) == 0 {
			return nil, fmt.Errorf("the fleet's benchmark does not report %s:\n%s", unit, out)
		}
	}
	ratio, bounds := medianWithInterval(metrics["pick/bare"])
	pick := result{Name: "route pick, 100k Envs x 8 members, reports arriving", Value: round(median(metrics["pick-ns"])), Unit: "ns", Samples: len(metrics["pick-ns"])}
	return []result{
		pick.against(median(metrics["bare-ns"]), ratio, bounds, 2, true),
		result{Name: "route pick allocations", Value: median(metrics["pick-allocs"]), Unit: "1/pick"}.exactly(0),
		{Name: "RWMutex scan of the same", Value: round(median(metrics["rwmutex-ns"])), Unit: "ns", Limit: ptr(round(median(metrics["bare-ns"]))),
			Ratio: ptr(round(median(metrics["rwmutex-ns"]) / median(metrics["bare-ns"])))},
		{Name: "segments merged meanwhile", Value: round(median(metrics["segments/s"])), Unit: "1/s"},
	}, nil
}

// parseBenchmark reads the output format of the Go benchmarks (golang.org/design/14313-benchmark-format): values by unit.
func parseBenchmark(out []byte, name string) (map[string][]float64, error) {
	metrics := map[string][]float64{}
	scanner := bufio.NewScanner(bytes.NewReader(out))
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], name) {
			continue
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("reading a benchmark's line %q: %w", scanner.Text(), err)
			}
			metrics[fields[i+1]] = append(metrics[fields[i+1]], value)
		}
	}
	return metrics, scanner.Err()
}
