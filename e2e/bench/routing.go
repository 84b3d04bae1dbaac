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
	metrics, err := goBenchmark(ctx, "hub/internal/fleet", "BenchmarkRoute", "1s", 10, "bare-ns", "pick-ns", "rwmutex-ns", "pick/bare", "pick-allocs", "segments/s")
	if err != nil {
		return nil, err
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

// ingest compares taking reports in with decoding them.
func (*linkBench) ingest(ctx context.Context) ([]result, error) {
	metrics, err := goBenchmark(ctx, "hub/internal/fleet", "BenchmarkIngest", "50x", 3, "bare-ns", "ingest-ns", "ingest/bare", "bytes/segment")
	if err != nil {
		return nil, err
	}
	ratio, bounds := medianWithInterval(metrics["ingest/bare"])
	perSecond := func(nanos []float64) float64 { return round(1e9 / median(nanos)) }
	r := result{
		Name:  fmt.Sprintf("ingest of reports, 100k Envs held, %.0f B a segment", median(metrics["bytes/segment"])),
		Value: perSecond(metrics["ingest-ns"]), Unit: "segments/s",
	}
	return []result{r.spreadRates(metrics["ingest-ns"]).against(perSecond(metrics["bare-ns"]), ratio, bounds, 0.5, false)}, nil
}

// spreadRates fills the distribution from times of one operation each.
func (r result) spreadRates(nanos []float64) result {
	rates := make([]float64, 0, len(nanos))
	for _, n := range nanos {
		rates = append(rates, 1e9/n)
	}
	return r.spread(rates)
}

// memoryOfMembers compares what a member costs in the fleet with what it costs as a decoded message.
func memoryOfMembers(ctx context.Context) ([]result, error) {
	metrics, err := goBenchmark(ctx, "hub/internal/fleet", "BenchmarkMemory", "1x", 2, "B/member", "proto-B/member", "fleet/proto")
	if err != nil {
		return nil, err
	}
	ratio, bounds := medianWithInterval(metrics["fleet/proto"])
	r := result{Name: "memory a member, 100k members in 25k Envs", Value: round(median(metrics["B/member"])), Unit: "B"}
	return []result{r.spread(metrics["B/member"]).against(median(metrics["proto-B/member"]), ratio, bounds, 0.5, true)}, nil
}

// queueing compares a decision of a full claim queue with one of a short queue.
func queueing(ctx context.Context) ([]result, error) {
	metrics, err := goBenchmark(ctx, "worker/internal/claim", "BenchmarkQueue", "1s", 5, "few-ns", "many-ns", "many/few")
	if err != nil {
		return nil, err
	}
	ratio, bounds := medianWithInterval(metrics["many/few"])
	r := result{Name: "queue decision with 8192 that wait, beside 64", Value: round(median(metrics["many-ns"])), Unit: "ns"}
	return []result{r.spread(metrics["many-ns"]).against(median(metrics["few-ns"]), ratio, bounds, 2, true)}, nil
}

// goBenchmark runs one of a package's benchmarks and answers what it reports, by unit.
func goBenchmark(ctx context.Context, pkg, name, time string, count int, units ...string) (map[string][]float64, error) {
	out, err := runBenchmarks(ctx, pkg, "^"+name+"$", time, count)
	if err != nil {
		return nil, err
	}
	metrics, err := parseBenchmark(out, name)
	if err != nil {
		return nil, err
	}
	for _, unit := range units {
		if len(metrics[unit]) == 0 {
			return nil, fmt.Errorf("%s of %s does not report %s:\n%s", name, pkg, unit, out)
		}
	}
	return metrics, nil
}

// runBenchmarks runs the benchmarks of a package that match a pattern, and answers what they print.
func runBenchmarks(ctx context.Context, pkg, pattern, time string, count int) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench="+pattern, "-benchtime="+time, "-count="+strconv.Itoa(count), "navix.sh/atoll/"+pkg)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("benchmarking %s: %w\n%s", pkg, err, out)
	}
	return out, nil
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
