// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"navix.sh/atoll/e2e/wait"
)

// probes is the number of claims without a key after a run. settle leaves room for them.
const probes = 3

// serves checks that the healed federation serves claims without a key: each returns a live sandbox within its bound.
func (w *world) serves() {
	draw := w.dice("probes")
	for i := range probes {
		w.eventually(fmt.Sprintf("claim %d without a key is answered", i), time.Minute, func() error {
			a := w.claim(0, draw, "", 1)
			return wait.If(a.said == live, a.why)
		})
	}
	w.eventually("a claim with an idle timeout is answered", time.Minute, func() error { return wait.If(w.claimToUse() != "", "it is not") })
}

// checkEnds ends every live sandbox, by its id or by its key. Each call responds within its bound, and what it ended has ended.
func (w *world) checkEnds() {
	truth, n := w.truth(), 0
	for _, id := range slices.Sorted(maps.Keys(w.history.given)) {
		g := w.history.given[id]
		if _, asked := w.history.givenUp[id]; asked || !truth[id].Ended.IsZero() || truth[id].Forgotten {
			continue
		}
		end := func() operation { return w.release(0, g) }
		if n++; g.key != "" && n%2 == 0 {
			end = func() operation { return w.cancel(0, g.key) }
		}
		w.eventually("the end of sandbox "+id+" is answered", time.Minute, func() error {
			o := end()
			return wait.If(o.said == done, fmt.Sprintf("%s: %s %s", o.verb, o.said, o.why))
		})
	}
	byKey := map[string][]string{}
	for id, g := range w.history.given {
		byKey[g.key] = append(byKey[g.key], id)
	}
	w.eventually("what callers were told has ended ends", time.Minute, func() error {
		truth := w.truth()
		for _, o := range w.history.all() {
			ids := []string{o.question.id}
			if o.verb == cancel {
				ids = byKey[o.key]
			}
			for _, id := range ids {
				if s := truth[id]; o.said == done && s.Ended.IsZero() && !s.Forgotten && !w.endedInCopy(o, id) {
					return fmt.Errorf("sandbox %s lives, %s of key %q was answered %s ago", id, o.verb, o.key, time.Since(o.at))
				}
			}
		}
		return nil
	})
}

// endedInCopy returns whether a copy of the cluster ended its own copy of a sandbox without a key. The hub keeps no record of
// such a sandbox, so a release that the copy answered leaves the sandbox of the cluster itself (see doc.go of package fleet).
func (w *world) endedInCopy(o *operation, id string) bool {
	if o.key != "" {
		return false
	}
	for _, s := range w.sites {
		for _, one := range s.Sandboxes() {
			if s.out && one.ID == id && !one.Ended.IsZero() {
				return true
			}
		}
	}
	return false
}
