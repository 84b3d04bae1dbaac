// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"navix.sh/atoll/worker/workertest"
)

var (
	seeds = flag.Int("sim.seeds", 1, "how many seeds each fault is tried with")
	first = flag.Uint64("sim.seed", 1, "the first seed")
)

// scenario is a fault, or several, under the load.
type scenario struct {
	fault    int // its number in the list of faults; 0: several
	name     string
	clusters map[string]int32 // Pods in each
	replicas int              // of the hub; 0: it is one process
	allowed  allowance
	// prepare runs before the load, in a healthy federation.
	prepare func(w *world)
	// run injects the fault while the load runs, and returns when it is over.
	run func(w *world, draw *rand.Rand)
}

var usual = map[string]int32{"east": 5, "north": 3, "west": 4}

func TestFaults(t *testing.T) {
	if *seeds < 1 {
		t.Fatalf("-sim.seeds=%d is not valid, want at least 1", *seeds)
	}
	for _, sc := range scenarios() {
		t.Run(fmt.Sprintf("%02d %s", sc.fault, sc.name), func(t *testing.T) {
			t.Parallel()
			var all counts
			for seed := *first; seed < *first+uint64(*seeds); seed++ {
				t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { sc.play(t, seed, &all) })
			}
			t.Logf("%d runs: %d claims, %d sandboxes answered, %d asked to end", *seeds, all.claims, all.given, all.ended)
		})
	}
}

// counts are the totals of all runs of a scenario.
type counts struct{ claims, given, ended int }

// play runs a scenario once.
func (sc *scenario) play(t *testing.T, seed uint64, all *counts) {
	bubble(t, func(t *testing.T) {
		clusters := sc.clusters
		if clusters == nil {
			clusters = usual
		}
		w := newWorld(t, seed, clusters, sc.replicas)
		w.allowed = sc.allowed
		defer w.show(sc)
		defer w.close()
		defer w.history.count(all)
		if !w.ready(time.Minute) {
			return
		}
		if sc.prepare != nil {
			sc.prepare(w)
		}
		draw := w.dice("faults")
		l := w.startLoad()
		time.Sleep(between(draw, 2*time.Second, 10*time.Second))
		sc.run(w, draw)
		w.heal()
		time.Sleep(between(draw, 0, 10*time.Second))
		l.end()
		if w.ready(3 * time.Minute) {
			w.settle()
			w.serves()
			w.check()
		}
	})
}

// heal ends all faults of the network, frames, API servers and disks.
func (w *world) heal() {
	w.frames.clear()
	w.claims.SetFull(false)
	w.registry.SetFull(false)
	for _, s := range w.sites {
		w.path(s.host).Heal()
		s.SetTrouble(noTrouble)
	}
	w.mu.Lock()
	w.deaf = func() bool { return false }
	down := w.hub == nil
	w.mu.Unlock()
	switch {
	case len(w.replicas) > 0:
		w.healReplicas()
	case down:
		w.startHub()
	}
}

func (w *world) show(sc *scenario) {
	for _, p := range w.problems {
		w.Error(p)
	}
	if w.Failed() {
		w.Logf("again: go test ./e2e/sim -run 'TestFaults/%02d' -sim.seeds=1 -sim.seed=%d -sim.log", sc.fault, w.seed)
	}
}

func between(draw *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(draw.Int64N(int64(most-least)))
}

func scenarios() []scenario {
	all := slices.Concat(networkFaults(), processFaults(), clusterFaults(), keyFaults(), lossFaults())
	all = slices.Concat(all, withReplicas(all), replicaFaults())
	slices.SortFunc(all, func(a, b scenario) int { return cmp.Compare(a.fault, b.fault) })
	return all
}

// intrude adds a cluster that presents itself as another one, perhaps with that one's etcd. The checks skip it.
func (w *world) intrude(s *site, uid string, etcd *workertest.Backup) *site {
	intruder := w.add(s.ID+"-intruder", s.ID, uid, 3)
	intruder.out = true
	if etcd != nil {
		intruder.Restore(*etcd)
	}
	intruder.startWorker()
	return intruder
}
