// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link"
)

const (
	movedEnvs = 50 // of each cluster
	// movedRate is the rate of claims meanwhile, and movedFor how long they are measured, before and from the kill on.
	movedRate = 20.0
	movedFor  = 5 * time.Second
)

// moving is a hub of several replicas with many simulated clusters.
type moving struct {
	stack   *stack.Stack
	clients map[string]*stack.Client
	crowd   *crowd.Crowd
	claims  int
}

// moved kills one of three replicas to which a third of many clusters is attached, and measures how long it takes until all of them are
// fresh at every other replica, beside as many workers that send their complete reports to a program that only decodes them. Claims go
// on meanwhile. Each move has a new hub; because replicas keep what they knew of clusters that are gone.
func (b *bench) moved(ctx context.Context, add func(...result)) error {
	var took, limits, ratios, before, during, p99 []float64
	var moved []leg
	for i := range b.size.moves {
		bare, err := b.bareResend(ctx, crowd.World{Clusters: b.size.moving / replicaCount, Envs: movedEnvs, Shared: 1})
		if err != nil {
			return err
		}
		one, everywhere, err := b.moveOnce(ctx, uint64(i))
		if err != nil {
			return err
		}
		b.logf("move %d: %d clusters, everywhere after %.2f s, a bare resend %.2f s", i+1, one.clusters, everywhere.Seconds(), bare.Seconds())
		took, limits = append(took, everywhere.Seconds()), append(limits, bare.Seconds())
		ratios = append(ratios, everywhere.Seconds()/bare.Seconds())
		moved = append(moved, one.during)
		calm, busy := quantile(0.99)(one.calm), quantile(0.99)(one.during)
		before, during, p99 = append(before, calm), append(during, busy), append(p99, busy/calm)
	}
	name := fmt.Sprintf("one of three replicas killed: until its third of %d clusters is fresh at every other", b.size.moving)
	add(paired(name, "s", took, limits, ratios).atMost(3), paired("p99 of claims meanwhile", "ms", during, before,
		p99).requests(moved).atMost(2))
	return nil
}

// bareResend returns how long the workers of a world take to send their complete reports to a program that only decodes them.
func (b *bench) bareResend(ctx context.Context, w crowd.World) (took time.Duration, err error) {
	s, err := b.atSite()
	if err != nil {
		return 0, err
	}
	server, err := b.bareProgram(s)
	if err != nil {
		return 0, err
	}
	if err := server.start(ctx); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.kill()) }()
	gate := newGate()
	others, err := s.gather(ctx, w, server.link, func(_ int, o *crowd.Options) { o.Open, o.Bare = gate.dial, true })
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, others.Stop()) }()
	one, err := restart(ctx, server, others, gate, func() error { return nil }, func(time.Time) error { return nil })
	return load.Quantile(one.Latencies, 1), err
}

// oneMove is what one kill of a replica cost.
type oneMove struct {
	clusters     int
	calm, during leg // of claims
}

// moveOnce starts a hub of several replicas, attaches clusters and moves a third of them.
func (b *bench) moveOnce(ctx context.Context, seed uint64) (out oneMove, everywhere time.Duration, err error) {
	if err := b.close(); err != nil {
		return out, 0, err
	}
	_, atoll, err := b.newStackOf(ctx, plane.Options{}, stack.Options{Hubs: replicaCount})
	if err != nil {
		return out, 0, err
	}
	m := &moving{stack: atoll}
	if m.clients, err = atoll.ReplicaClients(); err != nil {
		return out, 0, err
	}
	if m.crowd, err = gatherAt(ctx, atoll, crowd.World{Clusters: b.size.moving, Envs: movedEnvs, Shared: 4}); err != nil {
		return out, 0, err
	}
	defer func() { err = errors.Join(err, m.crowd.Stop()) }()
	return m.move(ctx, seed)
}

// gatherAt attaches simulated clusters to the hub of a stack.
func gatherAt(ctx context.Context, atoll *stack.Stack, w crowd.World) (*crowd.Crowd, error) {
	return crowd.Gather(ctx, w, func(i int) (crowd.Options, error) {
		files, err := atoll.Issue(w.ID(i))
		if err != nil {
			return crowd.Options{}, err
		}
		credentials, err := link.LoadCredentials(files, logr.Discard())
		return crowd.Options{Hub: atoll.LinkAddresses(), Credentials: credentials}, err
	})
}

// move kills the replica with the most clusters, waits until all are fresh elsewhere, and starts it again.
func (m *moving) move(ctx context.Context, seed uint64) (out oneMove, everywhere time.Duration, err error) {
	victim, n, err := m.most(ctx)
	if err != nil {
		return out, 0, err
	}
	var others []*stack.Client
	for name, client := range m.clients {
		if name != victim.String() {
			others = append(others, client)
		}
	}
	out.clusters, out.calm = n, m.load(ctx, others[0], seed)
	began := time.Now()
	if err := victim.Kill(); err != nil {
		return out, 0, err
	}
	var beside sync.WaitGroup
	beside.Go(func() { out.during = m.load(ctx, others[0], seed+1) })
	err = wait.Until(ctx, patience, "all clusters to be fresh elsewhere", func(ctx context.Context) error {
		for _, client := range others {
			list, err := client.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
			if err != nil {
				return err
			}
			fresh := 0
			for _, c := range list.GetClusters() {
				if c.GetState() == sandboxv1.ClusterState_FRESH && c.GetReplica() != victim.String() {
					fresh++
				}
			}
			if want := m.crowd.World.Clusters; fresh < want {
				return fmt.Errorf("%d of %d", fresh, want)
			}
		}
		everywhere = time.Since(began)
		return nil
	})
	beside.Wait()
	return out, everywhere, errors.Join(err, victim.Start(ctx))
}

// most returns the replica that most clusters are attached to, once all are fresh.
func (m *moving) most(ctx context.Context) (victim stack.Program, n int, err error) {
	err = wait.Until(ctx, patience, "all clusters to be fresh", func(ctx context.Context) error {
		counts := map[string]int{}
		for name, client := range m.clients {
			list, err := client.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			clear(counts)
			fresh := 0
			for _, c := range list.GetClusters() {
				if c.GetState() == sandboxv1.ClusterState_FRESH {
					counts[c.GetReplica()]++
					fresh++
				}
			}
			if want := m.crowd.World.Clusters; fresh < want {
				return fmt.Errorf("%s: %d of %d", name, fresh, want)
			}
		}
		for _, hub := range m.stack.Hubs() {
			if counts[hub.String()] > n {
				victim, n = hub, counts[hub.String()]
			}
		}
		return nil
	})
	return victim, n, err
}

// load makes claims, of many Envs in turn, at a constant rate.
func (m *moving) load(ctx context.Context, client *stack.Client, seed uint64) leg {
	w := m.crowd.World
	n := int(movedRate * movedFor.Seconds())
	first := m.claims
	m.claims += n
	return leg{Result: load.Open(ctx, n, movedRate, seed, func(ctx context.Context, i int) error {
		at := first + i
		_, err := client.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: w.Env(at%w.Clusters, at%w.Envs)})
		return err
	})}
}
