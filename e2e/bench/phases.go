// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/wait"
)

// reaching is a hub with limits, of one replica or several, and the processes of its simulated clusters.
type reaching struct {
	*bench
	scale *scale
	world crowd.World
	hub   *federation
	away  []*others
	add   func(r result, key string)

	idle phase // claims, and nothing else
	seed uint64
}

// phase is what was measured during one.
type phase struct {
	claims    leg
	right     time.Duration // from the event until the hub had acknowledged every report that it causes
	shown     time.Duration // from the event until the API showed every cluster as fresh, with what it has
	cpu, took float64       // seconds
	bytes     int64         // of all links, both ways
	reports   int64
	left      int64
}

// hubProcessors are those that the hub may use.
const hubProcessors = 2

// hold limits a hub's memory and processors; after prlimit, taskset and the hub, the process is the same.
func (s *scale) hold(p *program) {
	limits := []string{fmt.Sprintf("--data=%d", s.memory<<20), "taskset", "--cpu-list", fmt.Sprintf("0-%d", hubProcessors-1)}
	p.args = slices.Concat(limits, []string{p.path}, p.args)
	p.path = "prlimit"
	p.env = []string{fmt.Sprintf("GOMEMLIMIT=%dMiB", s.memory*3/4), fmt.Sprintf("GOMAXPROCS=%d", hubProcessors)}
}

// reachOut measures one number of clusters.
func (b *bench) reachOut(ctx context.Context, s *scale, clusters int, add func(r result, key string)) (err error) {
	r := &reaching{bench: b, scale: s, world: s.world(clusters), add: add}
	name := fmt.Sprintf("reach-%d", clusters)
	if err := b.removeLogs(name); err != nil {
		return err
	}
	if r.hub, err = b.startHubs(ctx, name, s.hubs, s.hold); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	w := r.world
	b.logf("%d clusters, %d Envs, %d members, %d Pods; each of %d hubs has %d MiB, and all have %d processors", clusters,
		(clusters+w.Shared-1)/w.Shared*w.Envs, clusters*w.Envs*w.Members, clusters*w.Pods, s.hubs, s.memory, hubProcessors)
	for _, one := range s.split(w) {
		o, err := sendAway(ctx, away{World: one, Hub: r.hub.links(), PKI: r.hub.site.pki()})
		if err != nil {
			return err
		}
		r.away = append(r.away, o)
	}
	phases := []func(context.Context) error{r.join, r.rest, r.steady, r.loseAThird, r.restart, r.upgrade, r.change, r.changeOne}
	if s.catalogue {
		phases = []func(context.Context) error{r.join, r.change, r.changeOne}
	}
	for _, next := range phases {
		if err := next(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *reaching) close() error {
	var errs []error
	for _, o := range r.away {
		errs = append(errs, o.end())
	}
	return errors.Join(append(errs, r.hub.close())...)
}

// all gives an order to all processes at once, and returns when the last one has done it.
func (r *reaching) all(next order) ([]told, error) {
	return r.each(func(*others) order { return next })
}

// each is all with an order for each process.
func (r *reaching) each(next func(o *others) order) ([]told, error) {
	answers, errs := make([]told, len(r.away)), make([]error, len(r.away))
	var telling sync.WaitGroup
	for i, o := range r.away {
		telling.Go(func() { answers[i], errs[i] = o.tell(next(o)) })
	}
	telling.Wait()
	return answers, errors.Join(errs...)
}

// processes are those of the replicas.
func (r *reaching) processes() (all procfs.Procs, err error) {
	for _, one := range r.hub.replicas {
		p, err := procfs.NewProc(one.cmd.Process.Pid)
		if err != nil {
			return nil, fmt.Errorf("looking at a hub's process: %w", err)
		}
		all = append(all, p)
	}
	return all, nil
}

// memory of the replica that has the most, in bytes.
type memory struct{ peak, rss uint64 }

func (r *reaching) memory() (most memory, err error) {
	processes, err := r.processes()
	if err != nil {
		return most, err
	}
	for _, p := range processes {
		status, err := p.NewStatus()
		if err != nil {
			return most, fmt.Errorf("looking at a hub's memory: %w", err)
		}
		most = memory{max(most.peak, status.VmHWM), max(most.rss, status.VmRSS)}
	}
	return most, nil
}

// during runs an event, beside claims if there are to be any, and measures.
func (r *reaching) during(ctx context.Context, claims bool, event func(p *phase) error) (p phase, err error) {
	processes, err := r.processes()
	if err != nil {
		return p, err
	}
	for _, one := range processes {
		if err := os.WriteFile(filepath.Join("/proc", strconv.Itoa(one.PID), "clear_refs"), []byte("5"), 0); err != nil {
			return p, fmt.Errorf("resetting a hub's peak memory: %w", err)
		}
	}
	before, err := r.reading()
	if err != nil {
		return p, err
	}
	began := time.Now()
	var claiming sync.WaitGroup
	if claims {
		r.seed++
		claiming.Go(func() { p.claims = r.claim(ctx, r.seed) })
	}
	err = event(&p)
	claiming.Wait()
	if err != nil {
		return p, err
	}
	p.took = time.Since(began).Seconds()
	after, err := r.reading()
	p.cpu, p.bytes = after.cpu-before.cpu, after.bytes-before.bytes
	return p, err
}

type reading struct {
	cpu   float64
	bytes int64
}

// reading of the replicas' processor time, and of the bytes of all links.
func (r *reaching) reading() (out reading, err error) {
	processes, err := r.processes()
	if err != nil {
		return out, err
	}
	for _, p := range processes {
		stat, err := p.Stat()
		if err != nil {
			return out, fmt.Errorf("looking at a hub's processor time: %w", err)
		}
		out.cpu += stat.CPUTime()
	}
	answers, err := r.all(order{Do: doNothing})
	for _, a := range answers {
		out.bytes += a.In + a.Out
	}
	return out, err
}

// claim makes claims of random Envs for a phase.
func (r *reaching) claim(ctx context.Context, seed uint64) leg {
	n := max(1, int(r.scale.churn*r.scale.phase.Seconds()))
	rnd := rand.New(rand.NewPCG(seed, 11))
	envs := make([]string, n)
	for i := range envs {
		envs[i] = r.world.Env(rnd.IntN(r.world.Clusters), rnd.IntN(r.world.Envs))
	}
	return leg{Result: load.Open(ctx, n, r.scale.churn, seed, func(ctx context.Context, i int) error {
		_, err := r.hub.create(ctx, &sandboxv1.CreateSandboxRequest{Env: envs[i]})
		return err
	})}
}

// tell adds what was measured of a phase.
func (r *reaching) tell(name string, p phase) error {
	memory, err := r.memory()
	if err != nil {
		return err
	}
	if p.right > 0 {
		r.add(measured(name+": until every report had counted", "s", []float64{p.right.Seconds()}), name+", time")
		r.add(measured(name+": until the API showed every cluster fresh and right", "s", []float64{p.shown.Seconds()}), "")
	}
	if len(p.claims.Latencies) > 0 && len(r.idle.claims.Latencies) > 0 {
		r.add(compare(fmt.Sprintf("%s: p99 of %g claims/s", name, r.scale.churn), "ms", quantile(0.99), []leg{p.claims}, []leg{r.idle.claims}).
			atMost(1.3), name+", p99")
		r.logf("%s: claims p50 %.4g ms, p99 %.4g ms, %d failed: %v", name, quantile(0.5)(p.claims), quantile(0.99)(p.claims), p.claims.Failed,
			p.claims.Err)
	}
	peak := measured(name+": the hub's peak RSS", "MB", []float64{float64(memory.peak) / 1e6})
	r.add(peak.atMost(float64(r.scale.memory<<20)/1e6), name+", peak RSS")
	r.add(measured(name+": the hub's processor time", "s", []float64{p.cpu}), "")
	r.logf("%s: right after %.2f s, shown after %.2f s; peak %.0f MB, RSS %.0f MB, %.2f s of processors in %.1f s, %.2f MB of links", name,
		p.right.Seconds(), p.shown.Seconds(), float64(memory.peak)/1e6, float64(memory.rss)/1e6, p.cpu, p.took, float64(p.bytes)/1e6)
	return nil
}

// slowest is the time of the last report.
func slowest(answers []told) (last time.Duration) {
	for _, a := range answers {
		if len(a.Arrivals) > 0 {
			last = max(last, slices.Max(a.Arrivals))
		}
	}
	return last
}

// samples is how many Envs of a cluster of each process are compared member by member.
const samples = 20

// verify waits until the API shows every cluster as fresh and with what its simulated worker has, and compares Envs member by member.
func (r *reaching) verify(ctx context.Context, began time.Time, p *phase) error {
	rnd := rand.New(rand.NewPCG(r.seed, 13))
	sample := make([][2]int, samples)
	for i := range sample {
		sample[i] = [2]int{rnd.IntN(r.away[len(r.away)-1].world.Clusters), rnd.IntN(r.world.Envs)}
	}
	answers, err := r.all(order{Do: doShow, Sample: sample})
	if err != nil {
		return err
	}
	holdings := map[string]crowd.Holding{}
	for _, a := range answers {
		maps.Copy(holdings, a.Holdings)
	}
	for i, view := range r.hub.replicas {
		err := wait.Until(ctx, patience, fmt.Sprintf("the API of replica %d to show every cluster", i), func(ctx context.Context) error {
			list, err := view.clusters.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
			if err != nil {
				return err
			}
			right := 0
			for _, c := range list.GetClusters() {
				shown := crowd.Holding{Envs: c.GetEnvs(), Members: c.GetMembers(), Idle: c.GetIdle(), Running: c.GetRunning()}
				if c.GetState() == sandboxv1.ClusterState_FRESH && shown == holdings[c.GetId()] {
					right++
				}
			}
			if right == len(holdings) {
				return nil
			}
			load.Sleep(ctx, time.Second/4) // a list counts all members
			return fmt.Errorf("%d of %d are fresh and right", right, len(holdings))
		})
		if err != nil {
			return err
		}
	}
	p.shown = time.Since(began)
	for i, a := range answers {
		if err := r.compareEnvs(ctx, r.away[i].world, sample, a.Members); err != nil {
			return err
		}
	}
	return nil
}

func (r *reaching) compareEnvs(ctx context.Context, w crowd.World, sample [][2]int, owned map[string]figures) error {
	found := 0
	for _, at := range sample {
		env, err := r.hub.envs.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: "default", Name: w.Env(at[0], at[1])})
		if err != nil {
			return fmt.Errorf("reading an Env: %w", err)
		}
		for _, c := range env.GetClusters() {
			for _, m := range c.GetMembers() {
				key := c.GetClusterId() + "/" + env.GetName() + "/" + m.GetName()
				want, asked := owned[key]
				if shown := (figures{m.GetIdle(), m.GetReadyIdle(), m.GetRunning()}); asked && shown != want {
					return fmt.Errorf("the API shows %s with %+v, and it has %+v", key, shown, want)
				} else if asked {
					found++
				}
			}
		}
	}
	if found < len(owned) {
		return fmt.Errorf("the API shows %d of %d members of a sample", found, len(owned))
	}
	return nil
}
