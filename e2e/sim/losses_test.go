// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"navix.sh/atoll/hub/hubtest"
	"navix.sh/atoll/worker/workertest"
)

// lossFaults are those that lose durable state, and all faults at once.
func lossFaults() []scenario {
	return []scenario{
		{fault: 0, name: "all kinds at once", allowed: allowance{orphans: true}, run: mixed},
		{fault: 5, name: "hub restarted with its ledger deleted", allowed: allowance{orphans: true}, run: ledgerDeleted},
		{fault: 6, name: "ledger damaged", allowed: allowance{orphans: true}, run: ledgerDamaged},
		{fault: 26, name: "hub's volume set back as a whole", allowed: allowance{orphans: true}, run: volumeSetBack},
		{fault: 17, name: "Env and cluster removed while the worker is away", allowed: allowance{orphans: true, endings: true, losses: true},
			run: removedWhileAway},
	}
}

func ledgerDeleted(w *world, draw *rand.Rand) {
	var away *site
	if draw.IntN(2) == 0 { // the hub has to wait for a cluster
		away = w.anySite(draw)
		w.path(away.host).Cut()
	}
	w.killHub()
	w.claims.Erase()
	time.Sleep(between(draw, 50*time.Millisecond, 3*time.Second))
	w.startHub()
	time.Sleep(between(draw, time.Second, 30*time.Second))
	if away != nil {
		w.path(away.host).Heal()
	}
	time.Sleep(between(draw, time.Second, 20*time.Second))
}

// volumeSetBack sets both disks back, to a state that they had together. Only workers remember more.
func volumeSetBack(w *world, draw *rand.Rand) {
	claims, registry := w.claims.Backup(), w.registry.Backup()
	time.Sleep(between(draw, 100*time.Millisecond, 40*time.Second))
	w.killHub()
	w.claims.Restore(claims)
	w.registry.Restore(registry)
	time.Sleep(between(draw, 50*time.Millisecond, 3*time.Second))
	w.startHub()
	time.Sleep(between(draw, time.Second, 30*time.Second))
}

// ledgerDamaged makes the hub refuse a ledger that it cannot read; the operator then deletes it.
func ledgerDamaged(w *world, draw *rand.Rand) {
	w.killHub()
	w.claims.Damage()
	if _, err := w.tryHub(); !errors.Is(err, hubtest.ErrDamaged) {
		w.problem("a hub on a damaged ledger: %v", err)
	}
	w.claims.Erase()
	time.Sleep(between(draw, 50*time.Millisecond, 10*time.Second))
	w.startHub()
	time.Sleep(between(draw, time.Second, 30*time.Second))
}

// removedWhileAway removes an Env in a cluster that is away, and forgets the cluster, which then is admitted again.
func removedWhileAway(w *world, draw *rand.Rand) {
	away := w.anySite(draw)
	w.must(away.AddEnv("goes", 1, ""))
	time.Sleep(2 * time.Second)
	w.path(away.host).Cut()
	time.Sleep(between(draw, time.Second, 60*time.Second))
	w.must(away.RemoveEnv("goes"))
	forget := draw.IntN(2) == 0
	if forget {
		_, err := w.hubs()[0].Fleet.Forget(context.Background(), away.ID)
		w.must(err)
	}
	time.Sleep(between(draw, time.Second, 20*time.Second))
	w.path(away.host).Heal()
	time.Sleep(between(draw, time.Second, 20*time.Second))
	if forget {
		_, err := w.hubs()[0].Fleet.Undrain(context.Background(), away.ID)
		w.must(err)
	}
}

// mixed injects a random fault every few seconds, without waiting for the previous one to end.
func mixed(w *world, draw *rand.Rand) {
	for range 12 {
		s := w.anySite(draw)
		path := w.path(s.host)
		switch draw.IntN(10) {
		case 0:
			path.Cut()
		case 1:
			path.Stall()
		case 2, 3:
			path.Heal()
			s.SetTrouble(noTrouble)
		case 4:
			w.restartHub(between(draw, 50*time.Millisecond, 3*time.Second))
		case 5:
			s.OnClaim(s.killWorker)
		case 6:
			s.SetTrouble(workertest.Trouble{
				Slow: time.Second, RefusedPercent: 20, LostResponsePercent: 10, LatePercent: 10, LateBy: 20 * time.Second,
			})
		case 7:
			w.claims.SetFull(true)
			time.Sleep(between(draw, time.Second, 5*time.Second))
			w.claims.SetFull(false)
		case 8:
			w.stepClocks(draw)
		default:
			path.Break()
		}
		time.Sleep(between(draw, 500*time.Millisecond, 8*time.Second))
	}
}
