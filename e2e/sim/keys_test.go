// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// keyFaults are races about one claim key.
func keyFaults() []scenario {
	return []scenario{
		{fault: 9, name: "a thousand creates with one key", run: thousandCreates},
		{fault: 10, name: "release, cancel and retry race create", clusters: map[string]int32{"east": 2, "west": 1}, run: races},
		{fault: 50, name: "claims leave full clusters", clusters: crowd, allowed: allowance{orphans: true}, run: crowded},
	}
}

// crowd has fewer Pods than claims, so that these wait while Pods become idle elsewhere.
var crowd = map[string]int32{"east": 2, "north": 1, "west": 2}

// crowded has more claims than Pods, which are released one after the other, while clusters are parted and dispatches come late.
func crowded(w *world, draw *rand.Rand) {
	var all sync.WaitGroup
	for i := range 40 {
		own := w.dice(fmt.Sprint("crowd", i))
		all.Go(func() {
			time.Sleep(between(own, 0, 40*time.Second))
			key := ""
			if own.IntN(4) > 0 {
				key = fmt.Sprint("crowd", i)
			}
			if a := w.claim(30+i, own, key, 1); a.said == live {
				time.Sleep(between(own, 0, 6*time.Second))
				w.history.mu.Lock()
				g := w.history.given[a.id]
				w.history.mu.Unlock()
				w.release(30+i, g)
			}
		})
	}
	for _, id := range []string{"north", "west"} { // claims wait in east, until these are back with idle Pods
		w.path(id).Stall()
	}
	time.Sleep(between(draw, 10*time.Second, 20*time.Second))
	for _, id := range []string{"north", "west"} {
		w.path(id).Heal()
	}
	for range 6 {
		time.Sleep(between(draw, time.Second, 8*time.Second))
		switch s := w.anySite(draw); draw.IntN(3) {
		case 0:
			w.path(s.ID).Break()
		case 1:
			w.path(s.ID).Stall()
			time.Sleep(between(draw, time.Second, 4*time.Second))
			w.path(s.ID).Heal()
		}
	}
	all.Wait()
}

func thousandCreates(w *world, draw *rand.Rand) {
	const callers = 1000
	var all sync.WaitGroup
	for i := range callers {
		own := w.dice(fmt.Sprint("caller", i))
		all.Go(func() {
			time.Sleep(between(own, 0, 2*time.Second))
			w.claim(i, own, "shared", 1)
		})
	}
	time.Sleep(between(draw, 0, 2*time.Second))
	switch s := w.anySite(draw); draw.IntN(4) {
	case 0:
		w.path(s.ID).Break()
	case 1:
		w.path(s.ID).Stall()
		time.Sleep(between(draw, time.Second, 10*time.Second))
		w.path(s.ID).Heal()
	case 2:
		w.cancel(0, "shared")
	}
	all.Wait()
}

// races has few Pods, so that claims queue, and every kind of call about a key in flight at once.
func races(w *world, draw *rand.Rand) {
	for round := range 12 {
		key := fmt.Sprint("raced", round)
		var all sync.WaitGroup
		for i := range 3 {
			own := w.dice(fmt.Sprint(key, i))
			all.Go(func() {
				time.Sleep(between(own, 0, 300*time.Millisecond))
				if a := w.claim(10+i, own, key, 1); a.said == live && own.IntN(2) == 0 {
					w.history.mu.Lock()
					g := w.history.given[a.id]
					w.history.mu.Unlock()
					w.release(10+i, g)
					w.claim(10+i, own, key, 1)
				}
			})
		}
		own := w.dice(key + "canceller")
		if own.IntN(2) == 0 {
			all.Go(func() {
				time.Sleep(between(own, 0, 500*time.Millisecond))
				w.cancel(20, key)
			})
		}
		time.Sleep(between(draw, 0, 2*time.Second))
		if draw.IntN(2) == 0 {
			all.Wait()
		} else {
			defer all.Wait()
		}
	}
}
