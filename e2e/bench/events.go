// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/wait"
)

// join lets all clusters join at once.
func (r *reaching) join(ctx context.Context) error {
	p, err := r.during(ctx, false, func(p *phase) error {
		began := time.Now()
		answers, err := r.all(order{Do: doAttach})
		if err != nil {
			return err
		}
		p.right = slowest(answers)
		return r.verify(ctx, began, p)
	})
	if err != nil {
		return fmt.Errorf("joining: %w", err)
	}
	members := float64(r.world.Clusters * r.world.Envs * r.world.Members)
	r.add(measured("joining at once: bytes of the links, a member", "B", []float64{float64(p.bytes) / members}), "")
	return r.tell("joining at once", p)
}

// settling is how long a hub has after it was filled, to collect the garbage; no longer than a phase.
const settling = 5 * time.Second

// rest measures claims, and what the hub needs, while no cluster has anything to report.
func (r *reaching) rest(ctx context.Context) (err error) {
	load.Sleep(ctx, min(settling, r.scale.phase))
	r.idle, err = r.during(ctx, true, func(*phase) error { return nil })
	if err != nil {
		return fmt.Errorf("at rest: %w", err)
	}
	r.add(latency(fmt.Sprintf("at rest: p99 of %g claims/s", r.scale.churn), 0.99, []leg{r.idle.claims}), "at rest, p99")
	memory, err := r.memory()
	if err != nil {
		return err
	}
	members := float64(r.world.Clusters * r.world.Envs * r.world.Members)
	r.add(measured("at rest: the hub's RSS, a member", "B", []float64{float64(memory.rss) / members}), "")
	idle := r.idle
	idle.claims = leg{}
	return r.tell("at rest", idle)
}

// steady measures claims while every cluster reports the change of an Env each second.
func (r *reaching) steady(ctx context.Context) error {
	p, err := r.during(ctx, true, func(p *phase) error {
		if _, err := r.all(order{Do: doReport, Interval: reportInterval, Envs: 1}); err != nil {
			return err
		}
		load.Sleep(ctx, r.scale.phase)
		answers, err := r.all(order{Do: doStop})
		for _, a := range answers {
			p.reports += a.Reports
			p.left += a.Left
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("while all report: %w", err)
	}
	// What the claims and heartbeats of as long at rest took is not the reports'.
	part := p.took / r.idle.took
	n := float64(max(1, p.reports))
	rate := measured("all report: reports", "1/s", []float64{n / p.took})
	rate.Errors = int(p.left)
	r.add(rate, "")
	cpu := max(0, p.cpu-r.idle.cpu*part) * 1e6 / n
	r.add(measured("all report: the hub's processor time, a report", "µs", []float64{cpu}), "CPU a report")
	r.add(measured("all report: bytes of the links both ways, a report", "B",
		[]float64{max(0, float64(p.bytes)-float64(r.idle.bytes)*part) / n}), "bytes a report")
	began := time.Now()
	if err := r.verify(ctx, began, &p); err != nil {
		return fmt.Errorf("after all reported: %w", err)
	}
	return r.tell("all report", p)
}

// loseAThird cuts the network of a third of the clusters, and heals it.
func (r *reaching) loseAThird(ctx context.Context) error {
	const every = 3
	p, err := r.during(ctx, true, func(p *phase) error {
		if _, err := r.all(order{Do: doSever, Every: every}); err != nil {
			return err
		}
		load.Sleep(ctx, r.scale.lost)
		began := time.Now()
		answers, err := r.all(order{Do: doHeal})
		if err != nil {
			return err
		}
		p.right = slowest(answers)
		return r.verify(ctx, began, p)
	})
	if err != nil {
		return fmt.Errorf("a third lost and back: %w", err)
	}
	return r.tell("a third lost and back", p)
}

// restart kills the hub, or one of its replicas, and starts it again. Its workers come back by themselves, after their back-off, or go to
// another replica. As many streams are awaited as there were; with replicas some may be of clusters that the replicas share out anew.
func (r *reaching) restart(ctx context.Context) error {
	lost, err := r.attached(ctx)
	if err != nil {
		return err
	}
	concerned := func(do doing) ([]told, error) {
		return r.each(func(o *others) order {
			if lost[o] == 0 {
				return order{Do: doNothing}
			}
			return order{Do: do, Clusters: lost[o]}
		})
	}
	if _, err := concerned(doExpect); err != nil {
		return err
	}
	killed := time.Now()
	if err := errors.Join(r.hub.hub.kill(), r.hub.hub.start(ctx)); err != nil {
		return err
	}
	var first time.Duration
	p, err := r.during(ctx, false, func(p *phase) error {
		r.hub.conn.ResetConnectBackoff()
		for {
			_, err := r.hub.create(ctx, &sandboxv1.CreateSandboxRequest{Env: r.world.Env(r.world.Clusters-1, 0)})
			if err == nil {
				first = time.Since(killed)
				break
			}
			if time.Since(killed) > patience {
				return fmt.Errorf("no claim was answered for %s: %w", patience, err)
			}
			load.Sleep(ctx, 5*time.Millisecond)
		}
		if _, err := concerned(doAwait); err != nil {
			return err
		}
		p.right = time.Since(killed)
		return r.verify(ctx, killed, p)
	})
	if err != nil {
		return fmt.Errorf("the hub killed: %w", err)
	}
	if len(r.hub.replicas) == 1 { // another replica would serve that claim at once
		r.add(measured("the hub killed: until the first claim, back-off included", "s", []float64{first.Seconds()}), "")
	}
	return r.tell("the hub killed", p)
}

// attached counts the clusters at the first replica, by their process.
func (r *reaching) attached(ctx context.Context) (map[*others]int, error) {
	list, err := r.hub.clusters.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	at := map[string]bool{}
	for _, c := range list.GetClusters() {
		at[c.GetId()] = len(r.hub.replicas) == 1 || c.GetReplica() == replicaName(0)
	}
	count := map[*others]int{}
	for _, o := range r.away {
		for i := range o.world.Clusters {
			if at[o.world.ID(i)] {
				count[o]++
			}
		}
	}
	return count, nil
}

// upgrade replaces all workers, in each process one after the other.
func (r *reaching) upgrade(ctx context.Context) error {
	p, err := r.during(ctx, true, func(p *phase) error {
		began := time.Now()
		if _, err := r.all(order{Do: doUpgrade}); err != nil {
			return err
		}
		p.right = time.Since(began)
		return r.verify(ctx, began, p)
	})
	if err != nil {
		return fmt.Errorf("all workers replaced: %w", err)
	}
	return r.tell("all workers replaced, one after the other", p)
}

// change puts Envs into the hub's catalogue, and waits until every cluster of theirs has its part.
func (r *reaching) change(ctx context.Context) error {
	groups := (r.world.Clusters + r.world.Shared - 1) / r.world.Shared
	n := min(r.scale.changed*r.world.Clusters, groups*r.world.Envs)
	p, err := r.during(ctx, true, func(p *phase) error {
		began := time.Now()
		for i := range n {
			if err := r.putEnv(ctx, i%groups*r.world.Shared, i/groups, 1); err != nil {
				return err
			}
		}
		put := time.Since(began)
		for i := range n {
			if err := r.awaitApplied(ctx, i%groups*r.world.Shared, i/groups); err != nil {
				return err
			}
		}
		p.right = time.Since(began)
		r.add(measured("Envs changed by the catalogue: their number", "Envs", []float64{float64(n)}), "")
		r.logf("%d Envs were in the catalogue after %.2f s", n, put.Seconds())
		if len(r.hub.replicas) == 1 { // etcd allocates its log in advance
			size, err := r.hub.storeSize()
			if err != nil {
				return err
			}
			r.add(measured("Envs changed by the catalogue: the hub's store", "MB", []float64{size}), "")
		}
		return r.verify(ctx, began, p)
	})
	if err != nil {
		return fmt.Errorf("changing Envs: %w", err)
	}
	return r.tell("Envs changed by the catalogue", p)
}

// mostToReach is the target, in milliseconds, of the time until every cluster of an Env has a change of it.
const mostToReach = 2000

// changeOne changes one Env of the catalogue after the other, each once the clusters have the change before.
func (r *reaching) changeOne(ctx context.Context) error {
	groups := (r.world.Clusters + r.world.Shared - 1) / r.world.Shared
	known := min(r.scale.changed*r.world.Clusters, groups*r.world.Envs)
	var took []float64
	for i := range r.scale.single {
		at := i * known / r.scale.single
		first, n := at%groups*r.world.Shared, at/groups
		began := time.Now()
		if err := r.putEnv(ctx, first, n, 2+i); err != nil {
			return err
		}
		if err := r.awaitApplied(ctx, first, n); err != nil {
			return err
		}
		took = append(took, float64(time.Since(began).Microseconds())/1000)
	}
	reached := measured(fmt.Sprintf("one of %d Envs changed by the catalogue: until all of its %d clusters have it, p99", known,
		r.world.Shared), "ms", took)
	reached.Value, reached.Low, reached.High = reached.P99, nil, nil
	r.add(reached.atMost(mostToReach), "")
	return nil
}

func (r *reaching) putEnv(ctx context.Context, first, n, replicas int) error {
	name := r.world.Env(first, n)
	var clusters []any
	for i := first; i < min(first+r.world.Shared, r.world.Clusters); i++ {
		clusters = append(clusters, map[string]any{"clusterID": r.world.ID(i), "members": []any{map[string]any{
			"name": name + "-small", "spec": map[string]any{"replicas": replicas},
			"config": map[string]any{"inlineResources": map[string]any{"requests": map[string]any{"cpu": "10m"}}},
		}}})
	}
	env, err := structpb.NewStruct(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "SandboxEnv", "metadata": map[string]any{"name": name, "namespace": "default"},
		"spec": map[string]any{
			"templateRef": map[string]any{"name": "python"}, "mode": "WarmPool",
			"overrides": map[string]any{"podCreationImagePolicy": "PoolDefaultImage"}, "clusters": clusters,
		},
	})
	if err != nil {
		return err
	}
	if _, err = r.hub.envs.PutEnv(ctx, &sandboxv1.PutEnvRequest{Namespace: "default", Name: name, Env: env}); err != nil {
		return fmt.Errorf("putting Env %s: %w", name, err)
	}
	return nil
}

func (r *reaching) awaitApplied(ctx context.Context, first, n int) error {
	name := r.world.Env(first, n)
	want := min(r.world.Shared, r.world.Clusters-first)
	return wait.Until(ctx, patience, "the clusters of Env "+name+" to have their parts", func(ctx context.Context) error {
		env, err := r.hub.envs.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: "default", Name: name})
		applied := 0
		for _, c := range env.GetCatalog().GetClusters() {
			if c.GetState() == sandboxv1.CatalogCluster_APPLIED && c.GetRevision() == env.GetCatalog().GetRevision() {
				applied++
			}
		}
		return errors.Join(err, wait.If(applied == want, fmt.Sprintf("%d of %d: %v", applied, want, env.GetCatalog().GetClusters())))
	})
}
