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

// goBenchmark is one of a package's benchmarks. It uses internals that the bench may not import, and alternates its arms, so
// that each run is one pair.
type goBenchmark struct{ pkg, name, time string }

// run runs the benchmark and returns its metrics, by unit.
func (g goBenchmark) run(ctx context.Context, count int, units ...string) (map[string][]float64, error) {
	pattern := "^" + strings.ReplaceAll(g.name, "/", "$/^") + "$"
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench="+pattern, "-benchtime="+g.time, "-count="+strconv.Itoa(count),
		"navix.sh/atoll/"+g.pkg)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("benchmarking %s: %w\n%s", g.pkg, err, out)
	}
	metrics, err := parseBenchmark(out, g.name)
	if err != nil {
		return nil, err
	}
	for _, unit := range units {
		if len(metrics[unit]) != count {
			return nil, fmt.Errorf("%s of %s reports %s %d times, not %d:\n%s", g.name, g.pkg, unit, len(metrics[unit]), count, out)
		}
	}
	return metrics, nil
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

// perSecond converts nanoseconds an operation to operations a second.
func perSecond(nanos []float64) []float64 {
	out := make([]float64, 0, len(nanos))
	for _, n := range nanos {
		out = append(out, 1e9/n)
	}
	return out
}

func (b *bench) routing(ctx context.Context, add func(...result)) error {
	m, err := goBenchmark{"hub/internal/fleet", "BenchmarkRoute", b.size.benchTime}.
		run(ctx, b.size.pairs, "bare-ns", "pick-ns", "rwmutex-ns", "pick/bare", "pick-allocs", "segments/s")
	if err != nil {
		return err
	}
	scan := measured("RWMutex scan of the same", "ns", m["rwmutex-ns"])
	scan.Limit = ptr(medianOf(m["bare-ns"]).value)
	add(paired("route pick, 100k Envs x 8 members, reports arriving", "ns", m["pick-ns"], m["bare-ns"], m["pick/bare"]).atMost(1.25),
		count("route pick allocations", "1/pick", medianOf(m["pick-allocs"]).value, b.size.pairs).exactly(0),
		scan, measured("segments merged meanwhile", "1/s", m["segments/s"]))
	return nil
}

// queue compares a decision of a full claim queue with one of a short queue.
func (b *bench) queue(ctx context.Context, add func(...result)) error {
	m, err := goBenchmark{"worker/internal/claim", "BenchmarkQueue", b.size.benchTime}.run(ctx, b.size.pairs, "few-ns", "many-ns", "many/few")
	if err != nil {
		return err
	}
	add(paired("queue decision with 8192 that wait, beside 64", "ns", m["many-ns"], m["few-ns"], m["many/few"]).atMost(2))
	return nil
}

// autoscaling has nothing to compare a decision with, and so no target.
func (b *bench) autoscaling(ctx context.Context, add func(...result)) error {
	for _, row := range []struct{ benchmark, unit, name, shown string }{
		{"BenchmarkDecide/groups=8", "ns/Env", "autoscaling decision, 32 members in 8 groups, 640 Pods", "ns"},
		{"BenchmarkDecide/groups=1", "ns/Env", "the same in one group", "ns"},
		{"BenchmarkDay", "days/s", "days simulated, 50 Pods and 4100 claims each", "1/s"},
	} {
		m, err := goBenchmark{"pkg/simulate", row.benchmark, b.size.benchTime}.run(ctx, b.size.pairs, row.unit)
		if err != nil {
			return err
		}
		add(measured(row.name, row.shown, m[row.unit]))
		if allocs := m["allocs/op"]; len(allocs) > 0 {
			add(count("allocations of that", "1/decision", medianOf(allocs).value, len(allocs)))
		}
	}
	return nil
}

// ingest compares applying reports with decoding them.
func (b *bench) ingest(ctx context.Context, add func(...result)) error {
	m, err := goBenchmark{"hub/internal/fleet", "BenchmarkIngest", "50x"}.
		run(ctx, b.size.pairs, "bare-ns", "ingest-ns", "ingest/bare", "bytes/segment")
	if err != nil {
		return err
	}
	name := fmt.Sprintf("ingest of reports, 100k Envs held, %.0f B a segment", medianOf(m["bytes/segment"]).value)
	add(paired(name, "segments/s", perSecond(m["ingest-ns"]), perSecond(m["bare-ns"]), m["ingest/bare"]).atLeast(0.5))
	return nil
}
