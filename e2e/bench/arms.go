// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"navix.sh/atoll/e2e/load"
)

// leg is the result of one period of one arm.
type leg struct {
	load.Result
	cpu cpu
}

// arm is one of the alternatives that are compared.
type arm struct {
	name  string
	reset func(ctx context.Context) error // before each leg, untimed; may be nil
	run   func(ctx context.Context, seed uint64) (leg, error)
}

// loaded is an arm of requests, sent with send.
func loaded(name string, reset func(context.Context) error, send func(ctx context.Context, seed uint64) load.Result) arm {
	return arm{name: name, reset: reset, run: func(ctx context.Context, seed uint64) (leg, error) {
		return leg{Result: send(ctx, seed)}, nil
	}}
}

// interleave runs a leg of each arm for each pair, in alternating order (ABBA), so that a drift of the machine affects all arms
// alike. It returns legs by arm and pair.
func (b *bench) interleave(ctx context.Context, what string, pairs int, arms ...arm) ([][]leg, error) {
	legs := make([][]leg, len(arms))
	for i := range pairs {
		shown := ""
		for place := range arms {
			at := place
			if i%2 == 1 {
				at = len(arms) - 1 - place
			}
			l, err := arms[at].leg(ctx, uint64(i))
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", what, arms[at].name, err)
			}
			legs[at] = append(legs[at], l)
			shown += fmt.Sprintf(", %s p50 %.4g ms", arms[at].name, quantile(0.5)(l))
			if l.Failed > 0 {
				shown += fmt.Sprintf(" (%d failed, first: %v)", l.Failed, l.Err)
			}
		}
		b.logf("%s: pair %d of %d%s", what, i+1, pairs, shown)
	}
	return legs, nil
}

func (a arm) leg(ctx context.Context, seed uint64) (leg, error) {
	if a.reset != nil {
		if err := a.reset(ctx); err != nil {
			return leg{}, fmt.Errorf("resetting: %w", err)
		}
	}
	before, err := readCPU()
	if err != nil {
		return leg{}, err
	}
	l, err := a.run(ctx, seed)
	if err != nil {
		return leg{}, err
	}
	after, err := readCPU()
	l.cpu = after.since(before)
	if err == nil {
		err = context.Cause(ctx)
	}
	return l, err
}

// perRequest is the processor time of the bench and its children, in milliseconds a request, by program.
func perRequest(l leg) map[string]float64 {
	out := map[string]float64{}
	for name, seconds := range l.cpu.ours {
		out[name] = seconds * 1000 / float64(len(l.Latencies))
	}
	return out
}

// mostCPU limits a claim's processor time as a multiple of a raw patch's, all programs together.
const mostCPU = 2

// cpuResults is a request's processor time for each program, beside that of the other arm.
func cpuResults(legs, limits []leg) []result {
	programs := map[string]bool{}
	for _, l := range legs {
		for name := range perRequest(l) {
			programs[name] = true
		}
	}
	all := compare("CPU, everything together", "ms/claim", func(l leg) float64 { return sum(perRequest(l)) }, legs, limits)
	out := []result{all.atMost(mostCPU)}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		of := func(l leg) float64 { return perRequest(l)[name] }
		r := measured("CPU, "+name, "ms/claim", each(legs, of))
		if r.Limit = ptr(medianOf(each(limits, of)).value); r.Value > 0 {
			out = append(out, r)
		}
	}
	return out
}
