// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/pkg/store"
)

const (
	keyedRate   = 400.0 // claims a second
	keyedClaims = 300   // a leg
	// recordSize is about that of a claim's record.
	recordSize = 512
)

// keyed measures the cost of a claim key, beside the one durable write that it needs at least, grouped with its neighbours. All
// three arms get the same arrivals.
func (b *bench) keyed(ctx context.Context, add func(...result)) (err error) {
	f, err := b.federate(ctx, "keyed", crowd.World{Clusters: 4, Envs: 8, Shared: 4, Members: 1, Pods: 8 * 2 * keyedClaims * b.size.pairs}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	bolt, err := store.OpenBolt(filepath.Join(f.site.dir, "writes.db"), "claims")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bolt.Close()) }()
	value := make([]byte, recordSize)
	at := func(name string, do func(ctx context.Context, key string) error) arm {
		return loaded(name, nil, func(ctx context.Context, seed uint64) load.Result {
			return load.Open(ctx, keyedClaims, keyedRate, seed, func(ctx context.Context,
				i int) error {
				return do(ctx, fmt.Sprintf("%d-%d", seed, i))
			})
		})
	}
	legs, err := b.interleave(ctx, "keyed", b.size.pairs,
		at("write", func(ctx context.Context, key string) error {
			_, err := bolt.Commit(ctx, store.Txn{Puts: []store.Put{{Key: "claims/" + key, Value: value}}})
			return err
		}),
		at("claim", func(ctx context.Context, _ string) error { return f.claim(ctx, 0, "") }),
		at("claim with a key", func(ctx context.Context, key string) error { return f.claim(ctx, 0, key) }))
	if err != nil {
		return err
	}
	writes, plain, keyed := legs[0], legs[1], legs[2]
	p50 := quantile(0.5)
	var adds, ratios []float64
	for i := range keyed {
		adds = append(adds, p50(keyed[i])-p50(plain[i]))
		ratios = append(ratios, adds[i]/p50(writes[i]))
	}
	added := paired(fmt.Sprintf("what a claim key adds, p50 at %g/s", keyedRate), "ms", adds, each(writes, p50), ratios)
	add(added.requests(keyed).atMost(1.2),
		latency("claim without a key, simulated worker, p50", 0.5, plain),
		latency("grouped store write, same arrivals, p50", 0.5, writes),
		compare("claim with a key, p99, beside such a write", "ms", quantile(0.99), keyed, writes))
	return nil
}

// saturation makes the preferred one of two clusters Saturated repeatedly, and counts the claims that the hub still sends
// there. Claims are made one after the other.
func (b *bench) saturation(ctx context.Context, add func(...result)) (err error) {
	w := crowd.World{Clusters: 2, Envs: 1, Shared: 2, Members: 1, Pods: 100_000}
	var strays atomic.Int64
	f, err := b.federate(ctx, "saturation", w, func(_ int, o *crowd.Options) { o.Refused = func() { strays.Add(1) } })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	claimUntil := func(cluster string) error {
		for {
			sandbox, err := f.create(ctx, &sandboxv1.CreateSandboxRequest{Env: w.Env(0, 0), Clusters: []string{w.ID(0)}})
			if err != nil || sandbox.GetClusterId() == cluster {
				return err
			}
		}
	}
	var counts []float64
	var away []time.Duration
	for i := range b.size.saturations {
		before, began := strays.Load(), time.Now()
		if err := errors.Join(f.crowd.Workers[0].Report(full(w.Segment(0, 0, i))), claimUntil(w.ID(1))); err != nil {
			return err
		}
		away, counts = append(away, time.Since(began)), append(counts, float64(strays.Load()-before))
		if err := errors.Join(f.crowd.Workers[0].Report(w.Segment(0, 0, i+1)), claimUntil(w.ID(0))); err != nil {
			return err
		}
	}
	add(count("stray claims after a cluster became Saturated, most of any time", "claims", slices.Max(counts), len(counts)).atMost(1),
		latency("Saturated to the first claim elsewhere, p50", 0.5, []leg{{Result: load.Result{Latencies: away}}}))
	return nil
}

// full is the segment of a cluster that has no capacity left and cannot grow.
func full(p *federationv1.EnvSegment) *federationv1.EnvSegment {
	for _, m := range p.GetMembers() {
		m.State, m.Idle, m.ReadyIdle, m.CanGrow, m.QueueCapacity = federationv1.MemberState_SATURATED, 0, 0, false, 0
	}
	return p
}

const (
	claimedFrom    = 100 // clusters, which report as well
	reportedEnvs   = 5
	reportInterval = time.Second
	reportingRate  = 200.0 // claims a second
	reportingLeg   = 300   // claims
	// reportingBefore is how long they report before the measurement; because a hub does this for days, and its heap tuner
	// adapts in the first seconds.
	reportingBefore = 15 * time.Second
)

// reporting compares claims while many workers report with claims while they only send heartbeats. These workers are remote, so
// their cost is not part of a claim's. Claims go to a hundred others, which respond at once.
func (b *bench) reporting(ctx context.Context, add func(...result)) (err error) {
	w := crowd.World{Clusters: claimedFrom, Envs: 20, Shared: 4}
	f, err := b.federate(ctx, "reporting", w, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	w.First, w.Clusters = w.Clusters, b.size.reporters
	o, err := sendAway(ctx, away{World: w, Hub: f.hub.link, PKI: f.site.pki()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.end()) }()
	if _, err := o.tell(order{Do: doAttach}); err != nil {
		return err
	}
	if err := f.fresh(ctx, claimedFrom+b.size.reporters); err != nil {
		return err
	}
	claims := func(ctx context.Context, seed uint64) load.Result {
		return load.Open(ctx, reportingLeg, reportingRate, seed, func(ctx context.Context,
			i int) error {
			return f.claim(ctx, i%claimedFrom, "")
		})
	}
	var rates []float64
	left := int64(0)
	during := func(ctx context.Context, measure func()) error {
		var reports atomic.Int64
		stop := f.crowd.Report(reportInterval, reportedEnvs, &reports)
		began := time.Now()
		if _, err := o.tell(order{Do: doReport, Interval: reportInterval, Envs: reportedEnvs}); err != nil {
			stop()
			return err
		}
		load.Sleep(ctx, reportInterval) // until all report
		measure()
		theirs, err := o.tell(order{Do: doStop})
		left += theirs.Left + stop()
		rates = append(rates, float64(theirs.Reports+reports.Load())/time.Since(began).Seconds())
		return err
	}
	if err := during(ctx, func() { load.Sleep(ctx, reportingBefore) }); err != nil {
		return err
	}
	rates, left = nil, 0
	pause := func(ctx context.Context) error { load.Sleep(ctx, rest); return nil }
	legs, err := b.interleave(ctx, "reporting", b.size.pairs, loaded("at rest", pause, claims), arm{
		name: "while they report", reset: pause, run: func(ctx context.Context, seed uint64) (l leg, err error) {
			err = during(ctx, func() { l.Result = claims(ctx, seed) })
			return l, err
		},
	})
	if err != nil {
		return err
	}
	reports := measured(fmt.Sprintf("reports meanwhile, of %d Envs", reportedEnvs), "1/s", rates)
	reports.Errors = int(left)
	name := fmt.Sprintf("claim %%s at %g/s while %d workers report", reportingRate, b.size.reporters)
	add(compare(fmt.Sprintf(name, "p99"), "ms", quantile(0.99), legs[1], legs[0]).atMost(1.3),
		compare(fmt.Sprintf(name, "p50"), "ms", quantile(0.5), legs[1], legs[0]), reports)
	return nil
}

// memorySettle is long enough for a hub to collect the garbage of a fill, and to return the memory.
const memorySettle = 40 * time.Second

// memory loads a hub with 100,000 members over 100 streams and reads its process's memory.
func (b *bench) memory(ctx context.Context, add func(...result)) (err error) {
	m, err := goBenchmark{"hub/internal/fleet", "BenchmarkMemory", "1x"}.run(ctx, 2, "B/member", "proto-B/member", "fleet/proto")
	if err != nil {
		return err
	}
	member := paired("memory a member, 100k members in 25k Envs", "B", m["B/member"], m["proto-B/member"], m["fleet/proto"]).atMost(0.4)
	member.counted = true
	add(member)
	f, err := b.federate(ctx, "memory", crowd.World{Clusters: 100, Envs: 1000, Shared: 4}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	process, err := procfs.NewProc(f.hub.cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("looking at the hub's process: %w", err)
	}
	// A hub without traffic does not collect the garbage of a fill.
	var reports atomic.Int64
	stop := f.crowd.Report(reportInterval, reportedEnvs, &reports)
	defer stop()
	load.Sleep(ctx, memorySettle)
	var samples, anonymous []float64
	var status procfs.ProcStatus
	for range 50 {
		load.Sleep(ctx, 100*time.Millisecond)
		if status, err = process.NewStatus(); err != nil {
			return fmt.Errorf("looking at the hub's process: %w", err)
		}
		samples, anonymous = append(samples, float64(status.VmRSS)/1e6), append(anonymous, float64(status.RssAnon)/1e6)
	}
	add(measured("the hub's RSS with 100,000 members and 100 streams that report every second", "MB", samples).atMost(100),
		measured("of it not pages of the program's file, which the kernel may drop", "MB", anonymous),
		measured("its peak, all reports at once included", "MB", []float64{float64(status.VmHWM) / 1e6}).atMost(150))
	return nil
}
