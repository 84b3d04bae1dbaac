// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"testing"
	"testing/synctest"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/disposition"
)

// I2: a claim for which there is no room is refused only if its attempt is unknown, and then permanently.
func TestI2OnlyAnUnknownAttemptIsDeclined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		pod := s.IdlePod("a")
		s.API.Put(pod)
		wants := func(what string, c Claim, want federationv1.Disposition) {
			t.Helper()
			if got := disposition.Of(s.Decline(c, problem.New(problem.QueueFull, "busy"))); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = s.Create(ctx, s.keyed("waits", 2)) }()
		synctest.Wait()
		cancel() // the stream broke
		synctest.Wait()
		wants("an attempt that waits", s.keyed("waits", 2), federationv1.Disposition_UNCLEAR)
		wants("an earlier one", s.keyed("waits", 1), federationv1.Disposition_REFUSED)
		s.See(pod)
		wants("an attempt that holds a Pod", s.keyed("waits", 2), federationv1.Disposition_UNCLEAR)

		wants("an unknown attempt", s.keyed("new", 1), federationv1.Disposition_REFUSED)
		if _, err := s.Create(t.Context(), s.keyed("new", 1)); problem.FromError(err).Reason != problem.QueueFull {
			t.Errorf("an attempt that was declined is carried out: %v", err)
		}
		s.update(func(l locked) { l.mayAppear(&op{claim: s.keyed("written", 1), id: "x"}) })
		wants("an attempt that may have been written", s.keyed("written", 1), federationv1.Disposition_UNCLEAR)
		other := s.keyed("new", 2)
		other.Incarnation = 5
		wants("of another incarnation", other, federationv1.Disposition_STALE_SESSION)
	})
}
