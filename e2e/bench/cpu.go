// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/prometheus/procfs"
)

// cpuTimes is processor time by program, in seconds: of this process and of everything it has started, the control plane
// included. It resists noise better than any latency.
type cpuTimes map[string]float64

const client = "the bench itself"

func readCPU() (cpuTimes, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	times := cpuTimes{}
	for _, p := range all {
		stat, err := p.Stat()
		switch {
		case err != nil:
			continue // it has ended
		case stat.PID == os.Getpid():
			times[client] += stat.CPUTime()
		case stat.PPID == os.Getpid():
			times[stat.Comm] += stat.CPUTime()
		}
	}
	return times, nil
}

func (c cpuTimes) since(before cpuTimes) cpuTimes {
	out := cpuTimes{}
	for name, seconds := range c {
		out[name] = seconds - before[name]
	}
	return out
}

// cpuResults tells what an operation of each arm costs every program; the raw arm's is the limit.
func cpuResults(beside string, pairs []pair) []result {
	cost := func(of func(pair) leg) (byName map[string]float64, operations int) {
		byName = map[string]float64{}
		for _, p := range pairs {
			for name, seconds := range of(p).cpu {
				byName[name] += seconds * 1000
				byName[total] += seconds * 1000
			}
			operations += len(of(p).latencies)
		}
		for name := range byName {
			byName[name] /= float64(operations)
		}
		return byName, operations
	}
	raw, _ := cost(func(p pair) leg { return p.raw })
	hub, n := cost(func(p pair) leg { return p.hub })
	var results []result
	for _, name := range slices.Sorted(maps.Keys(hub)) {
		if hub[name] < 0.01 && raw[name] < 0.01 {
			continue
		}
		r := result{Name: "CPU beside " + beside + ": " + name, Value: round(hub[name]), Unit: "ms/claim", Limit: ptr(round(raw[name])), Samples: n}
		if raw[name] > 0 {
			r.Ratio = ptr(round(hub[name] / raw[name]))
		}
		results = append(results, r)
	}
	return results
}

const total = "everything together"
