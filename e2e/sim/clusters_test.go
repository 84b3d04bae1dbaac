// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/rand/v2"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/worker/workertest"
)

var noTrouble workertest.Trouble

// clusterFaults are the faults of API servers, etcd, disks and identities.
func clusterFaults() []scenario {
	return []scenario{
		{fault: 11, name: "an old leader's writes arrive late", allowed: allowance{orphans: true}, run: writesLate},
		{fault: 13, name: "etcd restored from a backup", allowed: allowance{orphans: true}, run: etcdRestored},
		{fault: 15, name: "API server slow or busy", allowed: allowance{orphans: true}, run: apiServerSlow},
		{fault: 18, name: "a second cluster under a taken name, and a clone", allowed: allowance{losses: true, orphans: true}, run: impostors},
		{fault: 19, name: "thousands of re-applies", run: reapplied},
		{fault: 20, name: "disk full", run: diskFull},
	}
}

// writesLate delays writes until long after their client abandoned them, often until another process leads.
func writesLate(w *world, draw *rand.Rand) {
	for range 2 {
		s := w.anySite(draw)
		s.SetTrouble(workertest.Trouble{LatePercent: 40, LateBy: 30 * time.Second, LostResponsePercent: 10})
		time.Sleep(between(draw, 5*time.Second, 20*time.Second))
		if draw.IntN(2) == 0 {
			s.killWorker()
		}
		time.Sleep(between(draw, 5*time.Second, 20*time.Second))
		s.SetTrouble(noTrouble)
	}
	time.Sleep(30 * time.Second)
}

// etcdRestored stops an API server, restores its etcd and restarts it, sometimes before the leader has noticed.
func etcdRestored(w *world, draw *rand.Rand) {
	s := w.anySite(draw)
	backup := s.BackUp()
	time.Sleep(between(draw, 5*time.Second, 30*time.Second))
	s.SetTrouble(workertest.Trouble{Down: true})
	time.Sleep(between(draw, time.Second, 25*time.Second))
	s.Restore(backup)
	if draw.IntN(2) == 0 {
		s.killWorker()
	}
	s.SetTrouble(noTrouble)
	time.Sleep(between(draw, 10*time.Second, 40*time.Second))
}

func apiServerSlow(w *world, draw *rand.Rand) {
	for range 2 {
		s := w.anySite(draw)
		s.SetTrouble(workertest.Trouble{Slow: between(draw, 0, 5*time.Second), RefusedPercent: draw.IntN(60), LostResponsePercent: draw.IntN(20)})
		time.Sleep(between(draw, 10*time.Second, 30*time.Second))
		s.SetTrouble(noTrouble)
	}
}

// impostors adds a cluster under another one's name, and then one with that one's etcd.
func impostors(w *world, draw *rand.Rand) {
	s := w.anySite(draw)
	other := w.intrude(s, "uid-other", nil)
	time.Sleep(between(draw, 10*time.Second, 40*time.Second))
	other.stop()
	backup := s.BackUp()
	clone := w.intrude(s, "uid-"+s.ID, &backup)
	time.Sleep(between(draw, 70*time.Second, 2*time.Minute))
	for i, hub := range w.hubs() {
		if got := hub.Fleet.Cluster(s.ID).GetState(); got != sandboxv1.ClusterState_QUARANTINED {
			w.problem("hub %d does not see that there are two of cluster %s: %s", i, s.ID, got)
		}
	}
	clone.stop()
	// The quarantine ends when the hub has not seen both for a while.
	time.Sleep(6 * time.Minute)
}

// reapplied lets users apply their manifests repeatedly.
func reapplied(w *world, draw *rand.Rand) {
	for round := range 1000 {
		s := w.anySite(draw)
		w.must(s.Reapply(env, round))
		if round%100 == 0 {
			w.must(s.Scale(env, int32(3+draw.IntN(5))))
			time.Sleep(between(draw, 0, 3*time.Second))
		}
	}
}

func diskFull(w *world, draw *rand.Rand) {
	for range 2 {
		w.claims.SetFull(true)
		w.registry.SetFull(draw.IntN(2) == 0)
		if draw.IntN(3) == 0 {
			w.path(w.anySite(draw).ID).Break()
		}
		time.Sleep(between(draw, 5*time.Second, 20*time.Second))
		w.claims.SetFull(false)
		w.registry.SetFull(false)
		time.Sleep(between(draw, time.Second, 5*time.Second))
	}
}
