// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"testing"
	"testing/synctest"
	"time"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/disposition"
)

// TestI2OnlyAWaitingClaimIsWithdrawn: it is refused, and its attempt stays refused also where a Pod is idle. What does not wait under
// the key and attempt is left as it is.
func TestI2OnlyAWaitingClaimIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		hash := s.keyed("k", 2).KeyHash
		waits := s.begin(t.Context(), s.keyed("k", 2))
		synctest.Wait()
		for name, err := range map[string]error{
			"an earlier attempt": s.Withdraw(hash, 1), "a later attempt": s.Withdraw(hash, 3), "another key": s.Withdraw("other", 2),
			"no key": s.Withdraw("", 0),
		} {
			if problem.FromError(err).Reason != problem.NotFound || s.stats().Waiting != 1 {
				t.Errorf("%s: %v, and %d claims wait", name, err, s.stats().Waiting)
			}
		}
		if err := s.Withdraw(hash, 2); err != nil {
			t.Fatal(err)
		}
		<-waits.done
		if err := waits.err; !disposition.Refused(err) || problem.FromError(err).Reason != problem.NoCapacity || s.stats().Waiting != 0 {
			t.Errorf("%v, and %d claims wait", err, s.stats().Waiting)
		}
		synctest.Wait()
		if err := s.Withdraw(hash, 2); problem.FromError(err).Reason != problem.NotFound {
			t.Errorf("withdrawn again: %v", err)
		}
		s.See(s.IdlePod("a"))
		if _, err := s.Create(t.Context(), s.keyed("k", 2)); !disposition.Refused(err) {
			t.Errorf("the same attempt with an idle Pod: %v", err)
		}
		w := s.newAsker("ann", time.Minute)
		w.claim.KeyHash, w.claim.Attempt = "served", 1
		s.update(func(l locked) { l.ops["served"] = w.op })
		s.ask(w)
		if err := s.Withdraw("served", 1); w.got == nil || problem.FromError(err).Reason != problem.NotFound {
			t.Errorf("a claim with a Pod (%v): %v", w.got, err)
		}
	})
}
