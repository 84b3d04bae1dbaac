// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	replicaCount = 3
	// replicaRate is the rate of claims: low, because three hubs and three members of etcd share the processors, and a queue for those would
	// be measured with the hop.
	replicaRate = 20.0
)

// crossing is what a replica in between may add to a claim, in milliseconds; failover how long callers of a cluster may wait when the
// replica that it is attached to is killed.
const (
	crossing = 1.5
	failover = 2.0
)

// replicated is a hub of several replicas with one cluster.
type replicated struct {
	*stock
	stack   *stack.Stack
	clients map[string]*stack.Client
}

// replicas measures what several replicas of the hub cost: claims at the replica that the cluster is attached to beside claims at
// another one, and the time until claims go on after the former was killed.
func (b *bench) replicas(ctx context.Context, add func(...result)) error {
	p, atoll, err := b.newStackOf(ctx, plane.Options{}, stack.Options{Hubs: replicaCount})
	if err != nil {
		return err
	}
	s := &replicated{stack: atoll}
	if s.stock, err = b.newStock(ctx, atoll, b.size.stock, p); err != nil {
		return err
	}
	if s.clients, err = atoll.ReplicaClients(); err != nil {
		return err
	}
	for _, keyed := range []bool{false, true} {
		if err := s.cross(ctx, b, keyed, add); err != nil {
			return err
		}
	}
	return s.failovers(ctx, b, add)
}

// attached returns the replica that the cluster is attached to, and another one.
func (s *replicated) attached(ctx context.Context) (at, other string, err error) {
	err = wait.Until(ctx, patience, "the cluster to be attached, and all replicas to be connected", func(ctx context.Context) error {
		for name, client := range s.clients {
			cluster, err := client.GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: clusterID})
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if at = cluster.GetReplica(); at == "" || cluster.GetState() != sandboxv1.ClusterState_FRESH {
				return fmt.Errorf("%s sees it attached to %q, %s", name, at, cluster.GetState())
			}
			list, err := client.ListReplicas(ctx, &sandboxv1.ListReplicasRequest{})
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for _, r := range list.GetReplicas() {
				if !r.GetReachable() {
					return fmt.Errorf("%s does not reach %s", name, r.GetName())
				}
			}
			if len(list.GetReplicas()) != replicaCount {
				return fmt.Errorf("%s knows of %d replicas", name, len(list.GetReplicas()))
			}
		}
		return nil
	})
	for name := range s.clients {
		if name != at {
			other = name
		}
	}
	return at, other, err
}

// cross sends claims to the replica that the cluster is attached to and to another one in turn, so that both are measured at the same
// time: pairs of legs differed by more than a replica in between may add.
func (s *replicated) cross(ctx context.Context, b *bench, keyed bool, add func(...result)) error {
	at, other, err := s.attached(ctx)
	if err != nil {
		return err
	}
	what := kindOfClaim(keyed)
	clients := []*stack.Client{s.clients[at], s.clients[other]}
	legs, err := b.interleave(ctx, what+" at each of two replicas in turn", b.size.pairs,
		s.claimArm(keyed, s.open(replicaRate), func(i int) *stack.Client { return clients[i%2] }))
	if err != nil {
		return err
	}
	var attached, another []leg
	var adds []float64
	for i, l := range legs[0] {
		attached, another = append(attached, l.everySecond(0)), append(another, l.everySecond(1))
		adds = append(adds, quantile(0.5)(another[i])-quantile(0.5)(attached[i]))
	}
	add(latency(what+" p50, at the replica of its cluster", 0.5, attached), latency(what+" p50, at another replica", 0.5, another),
		measured("what crossing a replica adds to a "+what+", p50", "ms", adds).atMost(crossing))
	return nil
}

// everySecond is the leg's requests from this one, every second.
func (l leg) everySecond(from int) leg {
	var half leg
	for i := from; i < len(l.Latencies); i += 2 {
		half.Latencies = append(half.Latencies, l.Latencies[i])
		if l.Latencies[i] >= load.Timeout {
			half.Failed++
		}
	}
	return half
}

// failovers kills the cluster's replica, and claims at another one with a key until it is answered.
func (s *replicated) failovers(ctx context.Context, b *bench, add func(...result)) error {
	var took []float64
	retries := 0
	for i := range b.size.failovers {
		at, other, err := s.attached(ctx)
		if err != nil {
			return err
		}
		s.hub = s.clients[other]
		if err := s.resetPool(ctx); err != nil {
			return err
		}
		var victim stack.Program
		for _, hub := range s.stack.Hubs() {
			if hub.String() == at {
				victim = hub
			}
		}
		if err := victim.Kill(); err != nil {
			return err
		}
		began := time.Now()
		request := &sandboxv1.CreateSandboxRequest{ClaimKey: fmt.Sprintf("failover-%d-%d", began.UnixNano(), i)}
		for s.claim(ctx, request) != nil {
			retries++
			if time.Since(began) > patience {
				return fmt.Errorf("no claim was answered for %s after %s was killed", patience, at)
			}
			load.Sleep(ctx, 10*time.Millisecond)
		}
		took = append(took, time.Since(began).Seconds())
		b.logf("failover %d: %.3f s", i+1, took[i])
		if err := victim.Start(ctx); err != nil {
			return err
		}
	}
	r := measured("a cluster's replica is killed: until its next claim is answered", "s", took)
	worst := measured("the slowest of these", "s", []float64{r.Max}).atMost(failover)
	add(r, worst, count("retries of these claims", "calls", float64(retries), len(took)))
	return nil
}
