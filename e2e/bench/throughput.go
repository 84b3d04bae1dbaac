// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	// throughputClaims of a leg, by so many callers at once.
	throughputClaims, throughputCallers = 2000, 32
	// ledgerBytes is about the size of a claim's record.
	ledgerBytes = 400
	// relayEvery is how often each cluster reports while relaying is measured, of how many Envs, and relayFor how long.
	relayEvery, relayEnvs, relayFor = 100 * time.Millisecond, 5, 4 * time.Second
)

// throughputWorld has no more than one Env a cluster in common, so that a report goes to few others.
var throughputWorld = crowd.World{Clusters: 24, Envs: 20, Shared: 4}

// scaled is a hub of one to three replicas on an etcd of three, with simulated clusters.
type scaled struct {
	bench   *bench
	stack   *stack.Stack
	clients map[string]*stack.Client
	crowd   *crowd.Crowd
	etcd    *clientv3.Client
	legs    int
}

// atSize has the legs of one number of replicas.
type atSize struct {
	unkeyed, keyed, raw []leg
	cpu, bytes          []float64 // of a report, of all replicas
}

// throughput measures how many claims a hub of one, two and three replicas takes, beside transactions of its etcd, and what it costs to
// relay a report to another replica. All run on this machine: with more replicas more processes share its processors.
func (b *bench) throughput(ctx context.Context, add func(...result)) (err error) {
	s := &scaled{bench: b}
	if _, s.stack, err = b.newStackOf(ctx, plane.Options{}, stack.Options{Hubs: replicaCount}); err != nil {
		return err
	}
	if s.clients, err = s.stack.ReplicaClients(); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.etcd.Close()) }()
	if s.crowd, err = gatherAt(ctx, s.stack, throughputWorld); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.crowd.Stop()) }()
	sizes := make([]atSize, replicaCount+1)
	for i := range b.size.moves {
		for n := replicaCount; n >= 1; n-- {
			if err := s.measure(ctx, n, &sizes[n]); err != nil {
				return fmt.Errorf("%d replicas: %w", n, err)
			}
			if n > 1 {
				if err := s.stack.Hubs()[n-1].Stop(); err != nil {
					return err
				}
			}
		}
		b.logf("throughput: round %d of %d", i+1, b.size.moves)
		for _, hub := range s.stack.Hubs()[1:] {
			if err := hub.Start(ctx); err != nil {
				return err
			}
		}
	}
	s.tell(sizes, add)
	return nil
}

// connect prepares a client of the replicas' etcd.
func (s *scaled) connect() error {
	files := s.stack.Certificate("")
	info := transport.TLSInfo{CertFile: files.Cert, KeyFile: files.Key, TrustedCAFile: files.CA}
	config, err := info.ClientConfig()
	if err != nil {
		return fmt.Errorf("reading etcd's certificates: %w", err)
	}
	if s.etcd, err = clientv3.New(clientv3.Config{Endpoints: s.stack.EtcdEndpoints(), TLS: config}); err != nil {
		return fmt.Errorf("connecting to etcd: %w", err)
	}
	return nil
}

// measure runs the legs of n replicas, the first ones, once every cluster is fresh at each of them.
func (s *scaled) measure(ctx context.Context, n int, to *atSize) error {
	var clients []*stack.Client
	for _, hub := range s.stack.Hubs()[:n] {
		clients = append(clients, s.clients[hub.String()])
	}
	if err := s.fresh(ctx, clients); err != nil {
		return err
	}
	s.legs++
	claims := func(keyed bool) leg {
		return leg{Result: load.Closed(ctx, throughputClaims, throughputCallers, func(ctx context.Context, i int) error {
			request := &sandboxv1.CreateSandboxRequest{Env: throughputWorld.Env(i%throughputWorld.Clusters, i%throughputWorld.Envs)}
			if keyed {
				request.ClaimKey = fmt.Sprintf("throughput-%d-%d", s.legs, i)
			}
			_, err := clients[i%n].CreateSandbox(ctx, request)
			return err
		})}
	}
	to.unkeyed, to.keyed = append(to.unkeyed, claims(false)), append(to.keyed, claims(true))
	value := strings.Repeat("x", ledgerBytes)
	to.raw = append(to.raw, leg{Result: load.Closed(ctx, throughputClaims, throughputCallers, func(ctx context.Context, i int) error {
		key := "bench/" + strconv.Itoa(s.legs) + "/" + strconv.Itoa(i)
		done, err := s.etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, value)).Commit()
		if err == nil && !done.Succeeded {
			err = errors.New("the key exists")
		}
		return err
	})})
	return s.relay(ctx, n, to)
}

// fresh waits until replicas know of each other and of every cluster.
func (s *scaled) fresh(ctx context.Context, clients []*stack.Client) error {
	return wait.Until(ctx, patience, "all clusters to be fresh at every replica", func(ctx context.Context) error {
		for _, client := range clients {
			list, err := client.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
			if err != nil {
				return err
			}
			fresh := 0
			for _, c := range list.GetClusters() {
				if c.GetState() == sandboxv1.ClusterState_FRESH {
					fresh++
				}
			}
			replicas, err := client.ListReplicas(ctx, &sandboxv1.ListReplicasRequest{})
			if err != nil {
				return err
			}
			reached := 0
			for _, r := range replicas.GetReplicas() {
				if r.GetReachable() {
					reached++
				}
			}
			if fresh < throughputWorld.Clusters || reached != len(clients) {
				return fmt.Errorf("%d of %d clusters are fresh, %d of %d replicas are reached", fresh, throughputWorld.Clusters, reached, len(clients))
			}
		}
		return nil
	})
}

// relay has all clusters report, and measures what n replicas take for it.
func (s *scaled) relay(ctx context.Context, n int, to *atSize) error {
	bytes, err := s.peerBytes(ctx, n)
	if err != nil {
		return err
	}
	before, err := readCPU()
	if err != nil {
		return err
	}
	var reports atomic.Int64
	stop := s.crowd.Report(relayEvery, relayEnvs, &reports)
	load.Sleep(ctx, relayFor)
	stop() // replicas that have come back take over clusters, which skip a report meanwhile
	after, err := readCPU()
	if err != nil {
		return err
	}
	since, err := s.peerBytes(ctx, n)
	if err != nil {
		return err
	}
	if reports.Load() == 0 {
		return errors.New("no report was sent")
	}
	to.cpu = append(to.cpu, after.since(before).ours["atoll-hub"]*1e6/float64(reports.Load()))
	to.bytes = append(to.bytes, (since-bytes)/float64(reports.Load()))
	return nil
}

// peerBytes is what the first n replicas have sent to each other.
func (s *scaled) peerBytes(ctx context.Context, n int) (total float64, err error) {
	for i := range n {
		sent, err := s.stack.SumMetrics(ctx, stack.MetricsName(i), "atoll_hub_peer_bytes_total{")
		if err != nil {
			return 0, err
		}
		total += sent
	}
	return total, nil
}

func (s *scaled) tell(sizes []atSize, add func(...result)) {
	for n := 1; n <= replicaCount; n++ {
		of := fmt.Sprintf("%d replicas", n)
		if n == 1 {
			of = "one replica"
		}
		add(compare("claims at "+of+", beside transactions of its etcd", "1/s", rate, sizes[n].unkeyed, sizes[n].raw),
			compare("claims with a key at "+of+", beside transactions of its etcd", "1/s", rate, sizes[n].keyed, sizes[n].raw))
	}
	var cpu, bytes []float64
	for i := range sizes[1].cpu {
		cpu = append(cpu, (sizes[replicaCount].cpu[i]-sizes[1].cpu[i])/(replicaCount-1))
		bytes = append(bytes, sizes[replicaCount].bytes[i]/(replicaCount-1))
	}
	add(measured(fmt.Sprintf("a report of %d Envs: CPU of one replica that has it", relayEnvs), "us", sizes[1].cpu),
		measured("relaying it to another replica: CPU of both", "us", cpu), measured("relaying it to another replica", "bytes", bytes))
}
