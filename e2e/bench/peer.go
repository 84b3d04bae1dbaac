// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/wait"
)

const (
	// peerRate is a rate that the peer holds with its default flags.
	peerRate = 2.0
	// timesFaster and timesCheaper are the targets beside the peer.
	timesFaster, timesCheaper = 8, 4
)

// besides are the figures of one system.
type besides struct {
	steady, burst leg
	writes, cpu   float64 // of a cycle; cpu in milliseconds, above that of an idle plane
}

// peer compares with kubernetes-sigs/agent-sandbox, with its default flags and its tuned ones: one system after the other, each alone on a
// plane, with equal Pods.
func (b *bench) peer(ctx context.Context, add func(...result)) error {
	program, err := b.buildPeer(ctx)
	if err != nil {
		return err
	}
	b.logf("Atoll")
	b.group = "peer-atoll" // each system has its logs
	p, ours, err := b.newHubPool(ctx)
	if err != nil {
		return err
	}
	atoll, err := b.besides(ctx, p, ours)
	if err != nil {
		return fmt.Errorf("atoll: %w", err)
	}
	for _, tuned := range []bool{false, true} {
		name, flags := "default", []string(nil)
		if tuned {
			name, flags = "tuned", peerTuned
		}
		if err := b.close(); err != nil {
			return err
		}
		b.logf("the peer with %s flags %s", name, strings.Join(flags, " "))
		b.group = "peer-" + name
		p, theirs, err := b.newClaimPool(ctx, program, flags)
		if err != nil {
			return err
		}
		peer, err := b.besides(ctx, p, theirs)
		if err != nil {
			return fmt.Errorf("the peer with %s flags: %w", name, err)
		}
		than := ", beside the peer with " + name + " flags"
		add(faster(fmt.Sprintf("claim p50 at %g/s", peerRate)+than, quantile(0.5), atoll.steady, peer.steady).atLeast(timesFaster),
			faster(fmt.Sprintf("claim p99 at %g/s", peerRate)+than, quantile(0.99), atoll.steady, peer.steady),
			faster(fmt.Sprintf("burst of %d claims, the last one", cycledPods)+than, quantile(1), atoll.burst, peer.burst).atLeast(timesFaster),
			times("API writes of a cycle"+than, "1/cycle", atoll.writes, peer.writes),
			times("CPU of a cycle"+than, "ms", atoll.cpu, peer.cpu).atLeast(timesCheaper))
	}
	return nil
}

// faster is how many times a latency of the peer is ours.
func faster(name string, of metric, ours, peers leg) result {
	return times(name, "ms", of(ours), of(peers)).requests([]leg{ours})
}

// times is how many times a figure of the peer is ours.
func times(name, unit string, ours, peers float64) result {
	return paired(name, unit, []float64{ours}, []float64{peers}, []float64{peers / ours})
}

// besides measures one system: cycles at a low rate, then a burst that takes the whole pool.
func (b *bench) besides(ctx context.Context, p *plane.Plane, pool warmPool) (s besides, err error) {
	admin, err := adminClient(p)
	if err != nil {
		return s, err
	}
	if err := wait.Until(ctx, patience, "the pool to be full", pool.full); err != nil {
		return s, err
	}
	before, err := quietWrites(ctx, admin)
	if err != nil {
		return s, err
	}
	idle, err := arm{run: func(ctx context.Context, _ uint64) (leg, error) {
		load.Sleep(ctx, b.size.step/2)
		return leg{}, nil
	}}.leg(ctx, 0)
	if err != nil {
		return s, err
	}
	began := time.Now()
	if s.steady, err = b.cycles(ctx, pool, peerRate, b.size.step); err != nil {
		return s, err
	}
	took, n := time.Since(began), float64(len(s.steady.Latencies))
	after, err := quietWrites(ctx, admin)
	if err != nil {
		return s, err
	}
	s.writes = (sum(after) - sum(before)) / n
	s.cpu = (sum(s.steady.cpu.ours) - sum(idle.cpu.ours)*(took.Seconds()/(b.size.step/2).Seconds())) * 1000 / n
	b.logf("%.1f writes and %.1f ms of CPU a cycle", s.writes, s.cpu)
	if s.burst, err = b.burst(ctx, pool); err != nil {
		return s, err
	}
	if failed := s.steady.Failed + s.burst.Failed; failed > 0 {
		return s, fmt.Errorf("%d claims failed, one of them: %w", failed, cmp.Or(s.steady.Err, s.burst.Err))
	}
	return s, nil
}

// burst claims the whole pool at once.
func (b *bench) burst(ctx context.Context, pool warmPool) (leg, error) {
	releases := make([]release, cycledPods)
	l := leg{Result: load.Burst(ctx, cycledPods, func(ctx context.Context, i int) (err error) {
		releases[i], err = pool.claim(ctx)
		return err
	})}
	b.logf("burst of %d: the last one after %.4g ms, %d failed", cycledPods, quantile(1)(l), l.Failed)
	var released releasing
	for _, end := range releases {
		if end != nil {
			released.start(ctx, end)
		}
	}
	return l, released.wait()
}
