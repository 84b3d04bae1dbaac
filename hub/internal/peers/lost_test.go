// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// TestWhatABrokenRelayTookIsNamedAgain, in order and for a while; what is yet to be named comes after it.
func TestWhatABrokenRelayTookIsNamedAgain(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	one, two := &federationv1.LostCall{Dispatch: 1}, &federationv1.LostCall{Dispatch: 2}
	p := &peer{
		service: &Service{opts: Options{Clock: clock}},
		losses:  losses{dispatches: []uint64{1, 2, 3}, calls: []*federationv1.LostCall{one, two}},
	}
	p.markSent(losses{dispatches: []uint64{1}})
	clock.Step(namedFor + time.Second)
	p.markSent(losses{dispatches: []uint64{2}, calls: []*federationv1.LostCall{one}})
	if got := p.losses; !slices.Equal(got.dispatches, []uint64{3}) || !slices.Equal(got.calls, []*federationv1.LostCall{two}) {
		t.Fatalf("%v and %v are yet to be named", got.dispatches, got.calls)
	}
	p.requeueLosses()
	if got := p.losses; !slices.Equal(got.dispatches, []uint64{2, 3}) || !slices.Equal(got.calls, []*federationv1.LostCall{one, two}) {
		t.Errorf("%v and %v are named on the next relay, want dispatches 2 and 3 and both calls", got.dispatches, got.calls)
	}
}
