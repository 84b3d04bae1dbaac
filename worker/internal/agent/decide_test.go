// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/worker/internal/claim"
)

// Waiting claims, however many, leave room for the releases that they wait for.
func TestClaimsLeaveRoomForOtherCalls(t *testing.T) {
	s := newSlots()
	wants := &federationv1.Dispatch{Call: &federationv1.Dispatch_Claim{Claim: &federationv1.ClaimCall{}}}
	release := &federationv1.Dispatch{Call: &federationv1.Dispatch_Release{Release: &sandboxv1.ReleaseSandboxRequest{}}}
	for range maxClaims {
		s.of(wants) <- struct{}{}
	}
	select {
	case s.of(wants) <- struct{}{}:
		t.Error("there is no bound for claims")
	default:
	}
	select {
	case s.of(release) <- struct{}{}:
	default:
		t.Error("no release is carried out while claims wait")
	}
	if got := s.taken(); got != maxClaims+1 {
		t.Errorf("%d calls under way, want %d", got, maxClaims+1)
	}
	if maxClaims < 2*claim.DefaultQueueCapacity {
		t.Error("one Env's full queue takes the claims of all others")
	}
}

func TestDecideFloor(t *testing.T) {
	for name, c := range map[string]struct {
		own, highest uint64
		term         string
		raise        bool
	}{
		"a hub that knows nothing":   {5, 0, "", false},
		"a hub that is behind":       {5, 4, "another", false},
		"our own, from before":       {5, 5, "ours", false},
		"the same number, not ours":  {5, 5, "another", true},
		"a higher one":               {5, 9, "another", true},
		"a higher one of this term?": {5, 9, "ours", true},
	} {
		floor, raise := decideFloor(c.own, "ours", c.highest, c.term)
		if raise != c.raise || raise && floor != c.highest {
			t.Errorf("%s: %d, %t", name, floor, raise)
		}
	}
}
