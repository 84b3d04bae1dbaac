// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/disposition"
)

// TestAnIdleOnlyClaimDoesNotWait: it is refused at once where no Pod is idle, and takes one that is. The refusal holds for its attempt, and
// the next one may wait; an idle-only call of that attempt joins it.
func TestAnIdleOnlyClaimDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		idleOnly := func(c Claim) Claim {
			c.IdleOnly = true
			return c
		}
		unkeyed := s.keyed("", 0)
		unkeyed.KeyHash = ""
		for _, c := range []Claim{idleOnly(s.keyed("k", 1)), s.keyed("k", 1), idleOnly(unkeyed)} {
			began := time.Now()
			_, err := s.Create(t.Context(), c)
			if problem.FromError(err).Reason != problem.NoCapacity || !disposition.Refused(err) || time.Since(began) > 0 {
				t.Errorf("key %q, idle only %t: after %s: %v", c.KeyHash, c.IdleOnly, time.Since(began), err)
			}
		}
		ctx, leave := context.WithCancel(t.Context())
		got := make(chan *sandboxv1.Sandbox, 2)
		for _, c := range []Claim{s.keyed("k", 2), idleOnly(s.keyed("k", 2))} {
			go func() {
				sandbox, _ := s.Create(ctx, c)
				got <- sandbox
			}()
			synctest.Wait()
		}
		if s.stats().Waiting != 1 {
			t.Fatalf("%d claims wait, want the two calls of one attempt as one", s.stats().Waiting)
		}
		leave()
		<-got
		<-got
		if _, err := s.Cancel(t.Context(), s.keyed("k", 2).KeyHash, 2); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.See(s.IdlePod("a"))
		w := s.newAsker("ann", time.Minute)
		w.claim.IdleOnly = true
		if s.ask(w); w.got == nil {
			t.Errorf("there is an idle Pod: %v", w.err)
		}
	})
}
