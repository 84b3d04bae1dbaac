// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	// cycledPods is the size of the pool whose Pods are claimed, released and replaced.
	cycledPods = 100
	// unreturned is how long a sandbox lives whose caller left as it was returned; because the pool has to be full again within patience.
	unreturned = 30 * time.Second
)

// release gives a sandbox back.
type release func(ctx context.Context) error

// warmPool hands out the Pods of one pool of cycledPods, and replaces released ones.
type warmPool interface {
	// claim returns when the caller has a sandbox.
	claim(ctx context.Context) (release, error)
	// full returns nil if every Pod of the pool is idle and ready.
	full(ctx context.Context) error
}

// hubPool is an Env's pool, claimed through the hub.
type hubPool struct{ hub *stack.Client }

// newHubPool brings up a plane, a hub and a worker with an Env.
func (b *bench) newHubPool(ctx context.Context) (*plane.Plane, hubPool, error) {
	p, atoll, err := b.newStack(ctx, plane.Options{})
	if err != nil {
		return nil, hubPool{}, err
	}
	hub, err := atoll.HubClient()
	if err != nil {
		return nil, hubPool{}, err
	}
	return p, hubPool{hub}, stockEnv(cycledPods).Apply(ctx, p)
}

func (p hubPool) claim(ctx context.Context) (release, error) {
	sandbox, err := p.hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		Namespace: namespace, Env: envName, FirstActivityTimeout: durationpb.New(unreturned),
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return p.hub.Release(ctx, sandbox.GetId()) }, nil
}

func (p hubPool) full(ctx context.Context) error {
	ready, err := p.hub.ReadyIdle(ctx, namespace, envName)
	return wait.If(ready[clusterID] == cycledPods, fmt.Sprintf("%v of %d, %v", ready, cycledPods, err))
}

// cycles claims at a rate, and releases each sandbox once it is returned. Claims alone are timed. It ends when the pool is full again.
func (b *bench) cycles(ctx context.Context, pool warmPool, rate float64, d time.Duration) (leg, error) {
	if err := wait.Until(ctx, patience, "the pool to be full", pool.full); err != nil {
		return leg{}, err
	}
	var released releasing
	l, err := arm{name: "cycles", run: func(ctx context.Context, seed uint64) (leg, error) {
		result := load.Open(ctx, int(rate*d.Seconds()), rate, seed, func(ctx context.Context, _ int) error {
			end, err := pool.claim(ctx)
			if err == nil {
				released.start(context.WithoutCancel(ctx), end)
			}
			return err
		})
		if err := released.wait(); err != nil {
			return leg{}, err
		}
		return leg{Result: result}, wait.Until(ctx, patience, "the pool to be full again", pool.full)
	}}.leg(ctx, uint64(rate))
	b.logf("cycles at %g/s for %s: p50 %.4g ms, p99 %.4g ms, %d failed, %.1f ms of CPU each: %v", rate, d, quantile(0.5)(l), quantile(0.99)(l),
		l.Failed, sum(perRequest(l)), perRequest(l))
	return l, err
}

// releasing runs releases.
type releasing struct {
	running sync.WaitGroup

	mu  sync.Mutex
	err error // of one that failed
}

// start runs a release, which patience bounds.
func (r *releasing) start(ctx context.Context, end release) {
	r.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := end(ctx); err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.err = fmt.Errorf("releasing a sandbox: %w", err)
		}
	})
}

// wait returns when all releases have ended.
func (r *releasing) wait() error {
	r.running.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
