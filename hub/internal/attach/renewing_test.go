// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"testing"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/wait"
)

func getOf(id string) *federationv1.Dispatch {
	return &federationv1.Dispatch{Call: &federationv1.Dispatch_Get{Get: &sandboxv1.GetSandboxRequest{Id: id}}}
}

// Calls that come while a worker attaches again with a new certificate wait for the next stream, and none is sent on the old one.
func TestCallsWaitForTheStreamOfANewCertificate(t *testing.T) {
	h := newHub(t, handler{})
	creds := h.credentials("east")
	old := h.againWith("east", creds, 1)
	old.report(&federationv1.Report{Sequence: 1, Last: true, Complete: true}, "py")
	h.server.holdCalls("east")
	got := h.dispatch(t.Context(), "east", getOf("x-east"))
	old.end()
	h.eventually(func() error { return wait.If(h.server.conn("east") == nil, "the old stream") })
	if !h.server.Connected("east") {
		t.Error("other replicas would look for it elsewhere")
	}
	next := h.againWith("east", creds, 2) // without a report: a wait for its acknowledgement would drop the dispatch
	next.answer(&federationv1.Answer{Id: next.dispatched().GetId(), Disposition: federationv1.Disposition_DONE})
	if r := h.await(got); r.err != nil || r.answer.GetDisposition() != federationv1.Disposition_DONE {
		t.Errorf("the call got %v, %v", r.answer, r.err)
	}
}

// A worker that does not attach again is called as before, after a while.
func TestAHoldEnds(t *testing.T) {
	h := newHub(t, handler{})
	w := h.attach("east", "py")
	h.server.holdCalls("east")
	began := time.Now()
	done := h.dispatch(t.Context(), "east", getOf("x-east"))
	d := w.dispatched()
	if took := time.Since(began); took < renewPatience {
		t.Errorf("the call was sent after %s", took)
	}
	w.answer(&federationv1.Answer{Id: d.GetId(), Disposition: federationv1.Disposition_DONE})
	h.must(h.await(done).err)
}

// A cluster that attaches to another replica is not waited for, whether its old stream has ended by then or not.
func TestNoCallWaitsForAClusterThatIsAtAnotherReplica(t *testing.T) {
	for name, ended := range map[string]bool{"its stream has ended": true, "its stream has not ended": false} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, handler{})
			old := h.againWith("east", h.credentials("east"), 1)
			old.report(&federationv1.Report{Sequence: 1, Last: true, Complete: true}, "py")
			h.server.conn("east").renewing.Store(true)
			h.server.holdCalls("east")
			if ended {
				old.end()
				h.eventually(func() error { return wait.If(h.server.conn("east") == nil, "the old stream") })
			}
			began := time.Now()
			_, _, err := h.fleet.NewInlet("b").Take(&federationv1.RelayFrame{Body: &federationv1.RelayFrame_Attached{
				Attached: &federationv1.RelayAttached{ClusterId: "east", ClusterUid: "uid-east", Term: "term-east", Incarnation: 1, Stream: 2},
			}})
			h.must(err)
			h.eventually(func() error { return wait.If(!h.server.Connected("east"), "that it is waited for") })
			if err := h.await(h.dispatch(t.Context(), "east", getOf("x-east"))).err; !errors.Is(err, ErrNotConnected) {
				t.Errorf("the call got %v", err)
			}
			if took := time.Since(began); took > renewPatience/2 {
				t.Errorf("it was waited for for %s", took)
			}
		})
	}
}

// A call that the end of a renewed worker's stream cuts is sent again on the next stream, if it may be carried out twice.
func TestACallThatARenewalCutsIsSentAgain(t *testing.T) {
	claim := func(key string) *federationv1.Dispatch {
		return &federationv1.Dispatch{Call: &federationv1.Dispatch_Claim{Claim: &federationv1.ClaimCall{KeyHash: key}}}
	}
	for name, c := range map[string]struct {
		call           *federationv1.Dispatch
		renewed, again bool
	}{
		"a call":                  {getOf("x-east"), true, true},
		"a stream that broke":     {getOf("x-east"), false, false},
		"a claim":                 {claim(""), true, true},
		"a claim with a key":      {claim("k"), true, false},
		"the call of a port, say": {&federationv1.Dispatch{Call: &federationv1.Dispatch_Reach{Reach: &federationv1.ReachCall{}}}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, handler{})
			creds := h.credentials("east")
			old := h.againWith("east", creds, 1)
			old.report(&federationv1.Report{Sequence: 1, Last: true, Complete: true}, "py")
			got := h.dispatch(t.Context(), "east", c.call)
			old.receipt(old.dispatched())
			ending := h.server.conn("east")
			if c.renewed {
				ending.renewing.Store(true)
				h.server.holdCalls("east")
				h.server.mu.Lock()
				h.server.holds["east"].until = time.Time{} // the worker took long to leave
				h.server.mu.Unlock()
			}
			old.end()
			<-ending.done
			if next := h.againWith("east", creds, 2); c.again {
				next.answer(&federationv1.Answer{Id: next.dispatched().GetId(), Disposition: federationv1.Disposition_DONE})
			}
			if err := h.await(got).err; c.again != (err == nil) || err != nil && !errors.Is(err, ErrUnclear) {
				t.Errorf("the call got %v", err)
			}
		})
	}
}

// Clusters are asked for renewals in turn, so that claims find another one.
func TestClustersRenewInTurn(t *testing.T) {
	h := newHub(t, handler{})
	for _, id := range []string{"east", "west"} {
		h.attach(id)
	}
	takes := func(want bool, id string, urgent bool) {
		t.Helper()
		if got := h.server.takeRenewal(id, urgent); got != want {
			t.Errorf("%s takes a slot to renew: %v", id, got)
		}
	}
	takes(true, "east", false)
	takes(true, "east", false)
	takes(false, "west", false)
	h.server.replace(h.server.conn("east")) // it is back
	takes(true, "west", false)
	takes(false, "east", false)
	takes(true, "east", true) // its certificate is about to end
}
