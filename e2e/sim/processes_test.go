// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// processFaults are the faults of hub and workers themselves.
func processFaults() []scenario {
	return []scenario{
		{fault: 4, name: "hub killed in the middle of a complete report", allowed: allowance{orphans: true}, prepare: longReports,
			run: hubKilledMidReport},
		{fault: 7, name: "worker killed between Pod write and answer", allowed: allowance{orphans: true}, run: workerKilledMidClaim},
		{fault: 14, name: "clocks off and stepped", allowed: allowance{orphans: true}, prepare: clocksOff, run: clocksStepped},
		{fault: 21, name: "leader changes under load", allowed: allowance{orphans: true}, run: leaderChanges},
	}
}

// longReports makes complete reports of several chunks, by Envs whose image has a long name.
func longReports(w *world) {
	for _, s := range w.sites {
		for i := range 3 {
			w.must(s.AddEnv(fmt.Sprint("long", i), 0, strings.Repeat("x", 900)))
		}
	}
	time.Sleep(5 * time.Second)
}

func hubKilledMidReport(w *world, draw *rand.Rand) {
	for range 2 {
		killed := make(chan struct{}, 8)
		w.frames.setUp(func(_ string, f *federationv1.WorkerFrame) fate {
			if r := f.GetReport(); r.GetComplete() && !r.GetLast() {
				select {
				case killed <- struct{}{}:
					return fate{drop: true, before: w.killHub}
				default:
				}
			}
			return fate{}
		})
		// A hub without a view gets complete reports.
		w.killHub()
		w.startHub()
		select {
		case <-killed:
		case <-time.After(time.Minute):
			w.problem("no complete report came in several chunks")
		}
		w.frames.clear()
		time.Sleep(between(draw, 50*time.Millisecond, 5*time.Second))
		w.startHub()
		time.Sleep(between(draw, time.Second, 10*time.Second))
	}
}

func workerKilledMidClaim(w *world, draw *rand.Rand) {
	for range 3 {
		s := w.anySite(draw)
		s.OnClaim(s.killWorker)
		time.Sleep(between(draw, 5*time.Second, 25*time.Second))
	}
}

const farOff = 10 * time.Minute

func anyOffset(draw *rand.Rand) time.Duration { return between(draw, -farOff, farOff) }

// stepClocks steps the clocks of all our programs, and every other time those of API servers as well.
func (w *world) stepClocks(draw *rand.Rand) {
	w.hubClock.step(anyOffset(draw))
	servers := draw.IntN(2) == 0
	for _, s := range w.sites {
		s.clock.step(anyOffset(draw))
		if servers {
			s.SetClock(anyOffset(draw))
		}
	}
}

// clocksOff sets clock offsets from the beginning.
func clocksOff(w *world) {
	w.stepClocks(w.dice("clocks"))
}

func clocksStepped(w *world, draw *rand.Rand) {
	for range 3 {
		w.stepClocks(draw)
		switch draw.IntN(4) {
		case 0:
			w.restartHub(between(draw, 50*time.Millisecond, 2*time.Second))
		case 1:
			w.anySite(draw).killWorker()
		case 2:
			w.path(w.anySite(draw).ID).Break()
		}
		time.Sleep(between(draw, 5*time.Second, 20*time.Second))
	}
}

func leaderChanges(w *world, draw *rand.Rand) {
	for _, s := range w.sites {
		s.startWorker() // a follower
	}
	for range 4 {
		time.Sleep(between(draw, 2*time.Second, 15*time.Second))
		s := w.anySite(draw)
		leader := s.leader()
		switch {
		case leader == nil:
		case draw.IntN(2) == 0:
			leader.Stop()
		default:
			w.path(s.ID).Break()
			leader.Kill()
		}
	}
}
