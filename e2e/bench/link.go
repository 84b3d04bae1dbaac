// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"navix.sh/atoll/e2e/bench/crowd"
)

// linkBench measures the hub and its link, with simulated workers.
type linkBench struct {
	*site
	binDir, logDir string
}

// linkRows are the figures of the link, by the names that -only takes.
var linkRows = []struct {
	name string
	run  func(*linkBench, context.Context) ([]result, error)
}{
	{"keyed", (*linkBench).keyed},
	{"ingest", (*linkBench).ingest},
	{"saturation", (*linkBench).saturation},
	{"fanout", (*linkBench).fanOut},
	{"recovery", (*linkBench).recovery},
	{"memory", (*linkBench).memory},
	{"reporting", (*linkBench).reporting},
}

const linkGroup = "link"

// linkWanted reports whether -only asks for any of the link's figures.
func linkWanted(only string) bool {
	if only == "" || only == linkGroup {
		return true
	}
	for _, row := range linkRows {
		if row.name == only {
			return true
		}
	}
	return false
}

// linkResults measures all figures of the link, or the one that is asked for.
func linkResults(ctx context.Context, binDir, logDir, only string) (results []result, err error) {
	s, err := newSite()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	b := &linkBench{site: s, binDir: binDir, logDir: logDir}
	for _, row := range linkRows {
		if only != "" && only != linkGroup && only != row.name {
			continue
		}
		fmt.Printf("  %s, load %.2f\n", row.name, loadAverage())
		more, err := row.run(b, ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.name, err)
		}
		results = append(results, more...)
	}
	return results, nil
}

// federation is a hub process with simulated workers.
type federation struct {
	hub     *program
	address string // of the public API
	callers *callers
	crowd   *crowd.Crowd
}

// federate starts a hub and one worker for each cluster of a world. adjust may change what a worker plays.
func (b *linkBench) federate(ctx context.Context, name string, w crowd.World, adjust func(cluster int, o *crowd.Options)) (*federation, error) {
	hub, address, err := b.hubProgram(b.binDir, b.logDir, name)
	if err != nil {
		return nil, err
	}
	if err := hub.start(ctx); err != nil {
		return nil, errors.Join(err, hub.kill())
	}
	f := &federation{hub: hub, address: address}
	if f.callers, err = call(address); err != nil {
		return nil, errors.Join(err, f.close())
	}
	f.crowd, err = crowd.Gather(ctx, w, func(cluster int) (crowd.Options, error) {
		credentials, err := b.credentials(w.ID(cluster))
		o := crowd.Options{Hub: hub.link, Credentials: credentials}
		if adjust != nil {
			adjust(cluster, &o)
		}
		return o, err
	})
	if err == nil {
		err = f.callers.fresh(ctx, w.Clusters)
	}
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	sleepUntil(time.Now().Add(settleTime))
	return f, nil
}

func (f *federation) close() error {
	var errs []error
	if f.crowd != nil {
		errs = append(errs, f.crowd.Stop())
	}
	if f.callers != nil {
		errs = append(errs, f.callers.conn.Close())
	}
	return errors.Join(append(errs, f.hub.kill())...)
}

// atMost judges a value by itself: its 90 % bootstrap interval over the samples must not lie above the target.
func (r result) atMost(samples []float64, target float64) result {
	value, bounds := medianWithInterval(samples)
	r.Value, r.Samples = round(value), len(samples)
	met := bounds.low <= target
	r.Target, r.Met = fmt.Sprintf("<= %g %s", target, r.Unit), &met
	return r
}

// spread fills the distribution with values that are no latencies.
func (r result) spread(samples []float64) result {
	sorted := slices.Sorted(slices.Values(samples))
	at := func(q float64) float64 { return round(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]) }
	r.Samples, r.P50, r.P90, r.P99, r.Max = len(sorted), at(0.5), at(0.9), at(0.99), at(1)
	return r
}
