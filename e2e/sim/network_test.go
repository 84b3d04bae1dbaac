// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// anySite returns a random cluster of the federation.
func (w *world) anySite(draw *rand.Rand) *site {
	for {
		if s := w.sites[draw.IntN(len(w.sites))]; !s.out {
			return s
		}
	}
}

// members are the clusters of the federation.
func (w *world) members() []*site {
	return slices.DeleteFunc(slices.Clone(w.sites), func(s *site) bool { return s.out })
}

func (w *world) must(err error) {
	if err != nil {
		w.problem("the scenario itself failed: %v", err)
	}
}

// networkFaults are the faults between workers and hub.
func networkFaults() []scenario {
	return []scenario{
		{fault: 1, name: "worker and hub parted", run: parted},
		{fault: 2, name: "half-open connection", run: halfOpen},
		{fault: 3, name: "healed after a long time", run: healedLate},
		{fault: 8, name: "answers lost", allowed: allowance{orphans: true}, run: answersLost},
		{fault: 12, name: "frames reordered, repeated, dropped", allowed: allowance{orphans: true}, run: framesMixedUp},
		{fault: 16, name: "a cluster blackholed when the hub starts", run: blackholed},
		{fault: 22, name: "dispatches late", run: dispatchesLate},
	}
}

func parted(w *world, draw *rand.Rand) {
	for range 3 {
		path := w.path(w.anySite(draw).ID)
		path.Cut()
		time.Sleep(between(draw, 100*time.Millisecond, 30*time.Second))
		path.Heal()
		time.Sleep(between(draw, 100*time.Millisecond, 5*time.Second))
	}
}

func halfOpen(w *world, draw *rand.Rand) {
	for range 2 {
		path := w.path(w.anySite(draw).ID)
		path.Stall()
		time.Sleep(between(draw, 500*time.Millisecond, 40*time.Second))
		path.Heal()
		time.Sleep(between(draw, 100*time.Millisecond, 5*time.Second))
	}
}

// healedLate changes Envs on both sides of a cut that outlasts every interval: a removed Env must stay removed.
func healedLate(w *world, draw *rand.Rand) {
	away := w.anySite(draw)
	for _, s := range w.sites {
		w.must(s.AddEnv("goes", 1, ""))
	}
	time.Sleep(time.Second)
	w.path(away.ID).Cut()
	time.Sleep(between(draw, time.Second, time.Minute))
	for i, s := range w.sites {
		w.must(s.AddEnv(fmt.Sprint("comes", i%2), 1, ""))
		if s == away || draw.IntN(2) == 0 {
			w.must(s.RemoveEnv("goes"))
		}
	}
	time.Sleep(between(draw, time.Minute, 5*time.Minute))
}

// answersLost drops workers' responses, with the connection and without, and the hub's responses to callers.
func answersLost(w *world, draw *rand.Rand) {
	w.frames.setUp(func(cluster string, f *federationv1.WorkerFrame) fate {
		if f.GetAnswer() == nil || w.frames.percent() >= 30 {
			return fate{}
		}
		if w.frames.percent() < 50 {
			return fate{drop: true, before: func() { go w.path(cluster).Break() }}
		}
		return fate{drop: true}
	})
	w.mu.Lock()
	w.deaf = func() bool { return w.frames.percent() < 20 }
	w.mu.Unlock()
	time.Sleep(between(draw, 10*time.Second, 30*time.Second))
}

// framesMixedUp does to messages what a stream never does, and what the protocol survives nevertheless.
func framesMixedUp(w *world, draw *rand.Rand) {
	any := func() fate {
		switch p := w.frames.percent(); {
		case p < 8:
			return fate{drop: true}
		case p < 16:
			return fate{twice: true}
		case p < 30:
			return fate{delay: w.frames.below(3 * time.Second)}
		}
		return fate{}
	}
	w.frames.setUp(func(string, *federationv1.WorkerFrame) fate { return any() })
	w.frames.setDown(func(string, *federationv1.HubFrame) fate { return any() })
	time.Sleep(between(draw, 10*time.Second, 40*time.Second))
}

func blackholed(w *world, draw *rand.Rand) {
	path := w.path(w.anySite(draw).ID)
	path.Stall()
	w.restartHub(between(draw, 100*time.Millisecond, 5*time.Second))
	time.Sleep(between(draw, 5*time.Second, 70*time.Second))
	path.Heal()
}

// dispatchesLate holds dispatches back until their attempt was abandoned, cancelled or repeated.
func dispatchesLate(w *world, draw *rand.Rand) {
	w.delayDispatches()
	time.Sleep(between(draw, 20*time.Second, time.Minute))
}

func (w *world) delayDispatches() {
	w.frames.setDown(func(_ string, f *federationv1.HubFrame) fate {
		if f.GetDispatch() != nil && w.frames.percent() < 40 {
			return fate{delay: w.frames.below(50 * time.Second)}
		}
		return fate{}
	})
}
