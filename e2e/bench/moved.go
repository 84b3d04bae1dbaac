// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link/pki"
)

const (
	movedEnvs   = 50 // of each cluster
	movedShared = 4  // clusters that have an Env
	// servedClusters are those that claims go to.
	servedClusters = 12
	// movedRate is the rate of claims meanwhile, and movedFor how long they are measured, before and from the kill on.
	movedRate = 20.0
	movedFor  = 5 * time.Second
)

// moving is a hub of several replicas with many simulated clusters. A few of them take claims. The others are in a process of their own, so
// that their connecting does not delay what responds to claims.
type moving struct {
	stack   *stack.Stack
	clients map[string]*stack.Client
	away    *others
	served  *crowd.Crowd
	claims  int
}

// moved kills one of three replicas to which a third of many clusters is attached, and measures how long it takes until all of them are
// fresh at every other replica, beside as many workers that send their complete reports to a program that only decodes them. Claims go
// on meanwhile. Each move has a new hub; because replicas keep what they knew of clusters that are gone.
func (b *bench) moved(ctx context.Context, add func(...result)) error {
	var took, limits, ratios []float64
	var calm, during, beside []leg
	for i := range b.size.moves {
		bare, err := b.bareResend(ctx, nil)
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
		calm, during, beside = append(calm, one.calm), append(during, one.during), append(beside, one.beside)
	}
	name := fmt.Sprintf("one of three replicas killed: until its third of %d clusters is fresh at every other", b.size.moving)
	p99 := quantile(0.99)
	add(paired(name, "s", took, limits, ratios).atMost(3), compare("p99 of claims meanwhile", "ms", p99, during, calm).atMost(2),
		compare("p99 of claims while the bare resend takes the same processors", "ms", p99, beside, calm))
	return nil
}

// bareResend returns how long as many workers as move take to send their complete reports to a program that only decodes them. Meanwhile
// it runs beside, if given.
func (b *bench) bareResend(ctx context.Context, beside func()) (took time.Duration, err error) {
	w := crowd.World{Clusters: b.size.moving / replicaCount, Envs: movedEnvs, Shared: 1}
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
	o, err := sendAway(ctx, away{World: w, Hub: server.link, PKI: s.pki(), Bare: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, o.end()) }()
	var running sync.WaitGroup
	defer running.Wait()
	if beside != nil {
		running.Go(beside)
	}
	all, err := o.tell(order{Do: doAttach})
	if err != nil {
		return 0, err
	}
	return slices.Max(all.Arrivals), nil
}

// oneMove is what one kill of a replica cost.
type oneMove struct {
	clusters int
	// Claims before, during the move, and while a bare resend goes on beside.
	calm, during, beside leg
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
	world := crowd.World{Clusters: b.size.moving - servedClusters, Envs: movedEnvs, Shared: movedShared}
	if m.away, err = sendAway(ctx, away{World: world, Hub: atoll.LinkAddresses(), PKI: atoll.PKI()}); err != nil {
		return out, 0, err
	}
	defer func() { err = errors.Join(err, m.away.end()) }()
	if _, err := m.away.tell(order{Do: doAttach}); err != nil {
		return out, 0, err
	}
	if m.served, err = gatherAt(ctx, atoll, crowd.World{
		Clusters: servedClusters, First: world.Clusters, Envs: movedEnvs, Shared: movedShared,
	}); err != nil {
		return out, 0, err
	}
	defer func() { err = errors.Join(err, m.served.Stop()) }()
	if out, everywhere, err = m.move(ctx, seed); err != nil {
		return out, 0, err
	}
	if _, _, err := m.most(ctx); err != nil {
		return out, 0, err
	}
	_, err = b.bareResend(ctx, func() { out.beside = m.load(ctx, m.clients[atoll.Hubs()[0].String()], seed+2) })
	return out, everywhere, err
}

// gatherAt attaches simulated clusters to the hub of a stack.
func gatherAt(ctx context.Context, atoll *stack.Stack, w crowd.World) (*crowd.Crowd, error) {
	authority, err := pki.Open(atoll.PKI())
	if err != nil {
		return nil, err
	}
	return (&site{authority: authority}).gather(ctx, w, atoll.LinkAddresses(), nil)
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
	// Lists of a thousand clusters would keep the hub from what is measured, so they begin when most have moved: not all, because replicas
	// send clusters to each other meanwhile.
	if _, err := m.away.tell(order{Do: doExpect, Clusters: max(1, (n-servedClusters)*9/10)}); err != nil {
		return out, 0, err
	}
	began := time.Now()
	if err := victim.Kill(); err != nil {
		return out, 0, err
	}
	var beside sync.WaitGroup
	beside.Go(func() { out.during = m.load(ctx, others[0], seed+1) })
	_, err = m.away.tell(order{Do: doAwait})
	for _, client := range others {
		if err != nil {
			break
		}
		err = wait.Until(ctx, patience, "all clusters to be fresh elsewhere", func(ctx context.Context) error {
			counts, err := m.fresh(ctx, client)
			if err != nil {
				return err
			}
			if n := counts[victim.String()]; n > 0 {
				return fmt.Errorf("%d at the one that is gone", n)
			}
			return nil
		})
	}
	everywhere = time.Since(began)
	beside.Wait()
	return out, everywhere, errors.Join(err, victim.Start(ctx))
}

// most returns the replica that most clusters are attached to, once all are fresh.
func (m *moving) most(ctx context.Context) (victim stack.Program, n int, err error) {
	counts := map[string]int{}
	err = wait.Until(ctx, patience, "all clusters to be fresh", func(ctx context.Context) error {
		for name, client := range m.clients {
			if counts, err = m.fresh(ctx, client); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	for _, hub := range m.stack.Hubs() {
		if counts[hub.String()] > n {
			victim, n = hub, counts[hub.String()]
		}
	}
	return victim, n, err
}

// fresh returns how many clusters are attached to each replica, as one of them tells. It fails if a cluster is not fresh.
func (m *moving) fresh(ctx context.Context, client *stack.Client) (counts map[string]int, err error) {
	list, err := client.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
	if err != nil {
		return nil, err
	}
	counts = map[string]int{}
	fresh := 0
	for _, c := range list.GetClusters() {
		if c.GetState() == sandboxv1.ClusterState_FRESH {
			counts[c.GetReplica()]++
			fresh++
		}
	}
	if want := m.away.world.Clusters + m.served.World.Clusters; fresh < want {
		return nil, fmt.Errorf("%d of %d", fresh, want)
	}
	return counts, nil
}

// load makes claims, of many Envs in turn, at a constant rate.
func (m *moving) load(ctx context.Context, client *stack.Client, seed uint64) leg {
	w := m.served.World
	n := int(movedRate * movedFor.Seconds())
	first := m.claims
	m.claims += n
	return leg{Result: load.Open(ctx, n, movedRate, seed, func(ctx context.Context, i int) error {
		at := first + i
		_, err := client.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: w.Env(at%w.Clusters, at%w.Envs)})
		return err
	})}
}
