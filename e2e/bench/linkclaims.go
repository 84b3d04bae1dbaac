// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/pkg/store"
)

const (
	keyedRate   = 400.0 // claims a second
	keyedClaims = 300   // a leg
)

// recordSize is about that of a claim's record.
const recordSize = 512

// keyed measures what a claim key adds, beside the one durable write that it needs at the least, grouped with those of its
// neighbours. All three arms get the same arrivals.
func (b *linkBench) keyed(ctx context.Context) (results []result, err error) {
	f, err := b.federate(ctx, "keyed", crowd.World{Clusters: 4, Envs: 8, Shared: 4}, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	bolt, err := store.OpenBolt(filepath.Join(b.dir, "writes.db"), "claims")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bolt.Close()) }()
	value := make([]byte, recordSize)
	leg := 0
	arms := []operation{
		func(ctx context.Context, i int) error { return f.claim(ctx, 0, "") },
		func(ctx context.Context, i int) error { return f.claim(ctx, 0, fmt.Sprintf("keyed-%d-%d", leg, i)) },
		func(ctx context.Context, i int) error {
			_, err := bolt.Commit(ctx, store.Txn{Puts: []store.Put{{Key: fmt.Sprintf("claims/%d-%d", leg, i), Value: value}}})
			return err
		},
	}
	all := make([]leg3, pairCount)
	var ratios []float64
	for i := range all {
		for j := range arms {
			leg++
			arm := (i + j) % len(arms)
			all[i][arm] = openLoop(ctx, keyedClaims, keyedRate, uint64(i), arms[arm])
		}
		unkeyed, keyed, write := all[i].at(0.5)
		ratios = append(ratios, float64(keyed-unkeyed)/float64(write))
	}
	ratio, bounds := medianWithInterval(ratios)
	pooled := pool3(all)
	unkeyed, keyed, write := pooled.at(0.5)
	added := result{Name: fmt.Sprintf("what a claim key adds, p50 at %g/s", keyedRate), Value: millis(keyed - unkeyed), Unit: "ms"}
	added = added.withLatencies(pooled[1].latencies, pooled[1].errors).against(millis(write), ratio, bounds, 1.2, true)
	_, keyed99, write99 := pooled.at(0.99)
	return []result{
		added,
		result{Name: "claim without a key, simulated worker", Value: millis(unkeyed), Unit: "ms"}.withLatencies(pooled[0].latencies, pooled[0].errors),
		result{Name: "grouped store write, same arrivals", Value: millis(write), Unit: "ms"}.withLatencies(pooled[2].latencies, pooled[2].errors),
		{Name: "claim with a key, p99", Value: millis(keyed99), Unit: "ms", Limit: ptr(millis(write99)), Ratio: ptr(round(float64(keyed99) / float64(write99)))},
	}, ctx.Err()
}

// leg3 is one leg of each of three arms.
type leg3 [3]leg

func (l leg3) at(q float64) (first, second, third time.Duration) {
	return quantile(l[0].latencies, q), quantile(l[1].latencies, q), quantile(l[2].latencies, q)
}

func pool3(all []leg3) (out leg3) {
	for _, legs := range all {
		for i, l := range legs {
			out[i].latencies, out[i].errors = append(out[i].latencies, l.latencies...), out[i].errors+l.errors
		}
	}
	return out
}

var errWrong = errors.New("the answer is not of the Env that was asked for")

// claim takes a sandbox of the first Env of a cluster.
func (f *federation) claim(ctx context.Context, cluster int, key string) error {
	_, err := f.create(ctx, &sandboxv1.CreateSandboxRequest{Env: f.crowd.World.Env(cluster, 0), ClaimKey: key})
	return err
}

func (f *federation) create(ctx context.Context, request *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	sandbox, err := f.callers.CreateSandbox(ctx, request)
	switch {
	case err != nil:
		return nil, err
	case sandbox.GetEnv() != request.GetEnv() || sandbox.GetPhase() != sandboxv1.Phase_RUNNING || sandbox.GetClaimKey() != request.GetClaimKey():
		return nil, fmt.Errorf("%w: %v", errWrong, sandbox)
	default:
		return sandbox, nil
	}
}

const saturations = 200

// saturation has the preferred one of two clusters become Saturated while claims are made one after the other, and counts
// those that the hub still sends there.
func (b *linkBench) saturation(ctx context.Context) (results []result, err error) {
	w := crowd.World{Clusters: 2, Envs: 1, Shared: 2}
	var strays atomic.Int64
	f, err := b.federate(ctx, "saturation", w, func(_ int, o *crowd.Options) { o.Refused = func() { strays.Add(1) } })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	request := &sandboxv1.CreateSandboxRequest{Env: w.Env(0, 0), Clusters: []string{w.ID(0)}}
	stop := make(chan struct{})
	latest := &lastAnswer{changed: make(chan struct{})}
	var calling sync.WaitGroup
	var failed error
	calling.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			sandbox, err := f.create(ctx, request)
			if err != nil {
				failed = err
			}
			latest.set(sandbox.GetClusterId(), err)
		}
	})
	var counts []float64
	var away []time.Duration
	for i := range saturations {
		before, start := strays.Load(), time.Now()
		err = errors.Join(f.crowd.Workers[0].Report(full(w.Segment(0, 0, i))), latest.await(ctx, w.ID(1)))
		away = append(away, time.Since(start))
		counts = append(counts, float64(strays.Load()-before))
		err = errors.Join(err, f.crowd.Workers[0].Report(w.Segment(0, 0, i+1)), latest.await(ctx, w.ID(0)))
		if err != nil {
			break
		}
	}
	close(stop)
	calling.Wait()
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	most, sum := 0.0, 0.0
	for _, n := range counts {
		most, sum = max(most, n), sum+n
	}
	met := most <= 1
	worst := result{Name: "stray claims after a cluster became Saturated, most of any time", Value: most, Unit: "claims", Target: "<= 1", Met: &met}.spread(counts)
	return []result{
		worst,
		{Name: "stray claims, mean", Value: round(sum / float64(len(counts))), Unit: "claims", Samples: len(counts)},
		result{Name: "Saturated to the first claim elsewhere", Value: millis(quantile(away, 0.5)), Unit: "ms"}.withLatencies(away, 0),
	}, nil
}

// full is the segment of a cluster that has nothing left and cannot grow.
func full(p *federationv1.EnvSegment) *federationv1.EnvSegment {
	for _, m := range p.GetMembers() {
		m.State, m.Idle, m.ReadyIdle, m.CanGrow, m.QueueCapacity = federationv1.MemberState_SATURATED, 0, 0, false, 0
	}
	return p
}

// lastAnswer is which cluster answered last.
type lastAnswer struct {
	mu      sync.Mutex
	cluster string
	err     error
	changed chan struct{}
}

func (l *lastAnswer) set(cluster string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cluster != cluster || err != nil {
		l.cluster, l.err = cluster, err
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

func (l *lastAnswer) await(ctx context.Context, cluster string) error {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	for {
		l.mu.Lock()
		is, err, changed := l.cluster, l.err, l.changed
		l.mu.Unlock()
		if err != nil || is == cluster {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to be claimed from: %w", cluster, context.Cause(ctx))
		}
	}
}

const (
	reporters      = 1000
	claimedFrom    = 100 // clusters more, which report as well
	reportedEnvs   = 5
	reportInterval = time.Second
	reportingRate  = 200.0 // claims a second
	reportingLeg   = 300   // claims
	// reportingBefore is how long they report before anything is measured: a hub at this is at it for days, and finds its
	// heap's pace in the first seconds.
	reportingBefore = 15 * time.Second
)

// reporting compares claims while 1000 workers report with claims while they only send heartbeats. These workers are away:
// what they cost is no part of what a claim costs. Claims go to a hundred others, which answer at once.
func (b *linkBench) reporting(ctx context.Context) (results []result, err error) {
	w := crowd.World{Clusters: claimedFrom, Envs: 20, Shared: 4}
	f, err := b.federate(ctx, "reporting", w, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	w.First, w.Clusters = w.Clusters, reporters
	o, err := b.sendAway(ctx, away{World: w, Hub: f.hub.link, Interval: reportInterval, Changes: reportedEnvs})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.end()) }()
	if err := f.callers.fresh(ctx, claimedFrom+reporters); err != nil {
		return nil, err
	}
	sleepUntil(time.Now().Add(settleTime))
	var made reported
	before := func() leg { sleepUntil(time.Now().Add(reportingBefore)); return leg{} }
	if _, err := f.whileReporting(o, before, &made); err != nil {
		return nil, err
	}
	made = reported{}
	var took time.Duration
	do := func(ctx context.Context, i int) error { return f.claim(ctx, i%claimedFrom, "") }
	pairs := make([]pair, pairCount)
	for i := range pairs {
		measure := func() leg { return openLoop(ctx, reportingLeg, reportingRate, uint64(i), do) }
		if i%2 == 0 {
			pairs[i].raw = measure()
		}
		began := time.Now()
		if pairs[i].hub, err = f.whileReporting(o, measure, &made); err != nil {
			return nil, err
		}
		took += time.Since(began)
		sleepUntil(time.Now().Add(rest))
		if i%2 == 1 {
			pairs[i].raw = measure()
		}
	}
	idle, loaded := pool(pairs)
	p99, bounds := pooledRatioOf(pairs, 0.99)
	p50, _ := ratioOf(pairs, 0.5)
	r := result{Name: fmt.Sprintf("claim p99 at %g/s while %d workers report", reportingRate, reporters), Value: millis(quantile(loaded.latencies, 0.99)), Unit: "ms"}
	return []result{
		r.withLatencies(loaded.latencies, loaded.errors).against(millis(quantile(idle.latencies, 0.99)), p99, bounds, 1.3, true),
		{Name: "the same, p50", Value: millis(quantile(loaded.latencies, 0.5)), Unit: "ms", Limit: ptr(millis(quantile(idle.latencies, 0.5))), Ratio: ptr(round(p50))},
		{Name: fmt.Sprintf("reports meanwhile, of %d Envs", reportedEnvs), Value: math.Round(float64(made.Reports) / took.Seconds()), Unit: "1/s", Errors: int(made.Left)},
	}, ctx.Err()
}

// whileReporting measures while all workers report, and adds up their reports.
func (f *federation) whileReporting(o *others, measure func() leg, made *reported) (leg, error) {
	var reports atomic.Int64
	stop := f.crowd.Report(reportInterval, reportedEnvs, &reports)
	_, err := o.say(sayReport)
	if err != nil {
		stop()
		return leg{}, err
	}
	sleepUntil(time.Now().Add(reportInterval)) // until all are at it
	l := measure()
	more, err := o.say(sayRest)
	made.Left += more.Left + stop()
	made.Reports += more.Reports + reports.Load()
	return l, err
}
