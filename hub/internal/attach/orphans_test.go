// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link"
)

// Sandbox ids of cluster a.
const (
	lateA  = "01hzzzzzzzzzzzzzzzzzzzzzz1-a"
	toldA  = "01hzzzzzzzzzzzzzzzzzzzzzz2-a"
	underA = "01hzzzzzzzzzzzzzzzzzzzzzz3-a"
)

// again opens a cluster's next stream.
func (h *hub) again(id string, stream uint64, unacknowledged ...*federationv1.Unacknowledged) *worker {
	h.Helper()
	return h.againWith(id, h.credentials(id), stream, unacknowledged...)
}

func (h *hub) againWith(id string, creds *link.Credentials, stream uint64, unacknowledged ...*federationv1.Unacknowledged) *worker {
	h.Helper()
	w := h.beginWith(id, creds, &federationv1.Hello{Incarnation: 1, Stream: stream, Unacknowledged: unacknowledged})
	w.read()
	return w
}

func unacknowledged(stream, dispatch uint64, sandbox string) *federationv1.Unacknowledged {
	return &federationv1.Unacknowledged{Stream: stream, Dispatch: dispatch, SandboxId: sandbox}
}

// mustRelease expects a release of each, in any order, and responds.
func (w *worker) mustRelease(answer *federationv1.Error, sandboxes ...string) {
	w.Helper()
	var got []string
	for range sandboxes {
		d := w.dispatched()
		got = append(got, d.GetRelease().GetId())
		w.receipt(d)
		w.answer(&federationv1.Answer{Id: d.GetId(), Error: answer})
	}
	if slices.Sort(got); !slices.Equal(got, sandboxes) {
		w.Fatalf("the hub releases %q, want %q", got, sandboxes)
	}
}

// A sandbox whose response was lost with its stream is released when the worker names it, whether its caller left before the
// stream ended or with it. A sandbox whose response arrived stays, although the worker does not know that it did.
func TestASandboxThatWasLostWithItsStreamIsReleased(t *testing.T) {
	h := newHub(t, handler{})
	w := h.attach("a", "py")
	told := h.dispatch(t.Context(), "a", claimOf(""))
	first := w.dispatched()
	w.receipt(first)
	w.answer(&federationv1.Answer{Id: first.GetId(), Result: &federationv1.Answer_Sandbox{Sandbox: &sandboxv1.Sandbox{Id: toldA}}})
	h.must(h.await(told).err)
	late := h.dispatch(t.Context(), "a", claimOf(""))
	second := w.dispatched() // and no receipt
	h.wantUnclear(late)
	under := h.dispatch(t.Context(), "a", claimOf(""))
	third := w.dispatched()
	w.receipt(third)
	w.end()
	h.wantUnclear(under)
	w = h.again("a", 2, unacknowledged(1, first.GetId(), toldA), unacknowledged(1, second.GetId(), lateA),
		unacknowledged(1, third.GetId(), underA))
	w.mustRelease(nil, lateA, underA)
	h.settled("a")
}

// TestACallThatAnotherReplicaLostIsReleased, and a sandbox that it could not release. Nothing is kept for an unknown cluster.
func TestACallThatAnotherReplicaLostIsReleased(t *testing.T) {
	h := newHub(t, handler{})
	w := h.again("a", 2, unacknowledged(1, 7, lateA), unacknowledged(1, 8, toldA))
	lost := func(cluster string, dispatch uint64) *federationv1.LostCall {
		return &federationv1.LostCall{ClusterId: cluster, Term: "term-" + cluster, Stream: 1, Dispatch: dispatch}
	}
	h.server.LostElsewhere(&federationv1.RelayLost{
		Calls:      []*federationv1.LostCall{lost("a", 7), lost("a", 9), lost("b", 7)},
		SandboxIds: []string{underA, "01hzzzzzzzzzzzzzzzzzzzzzz1-b"},
	})
	w.mustRelease(nil, lateA, underA)
	h.settled("a")
	if _, kept := h.server.orphans.halves["b"]; kept || len(h.server.orphans.of("b")) > 0 {
		t.Error("what is named of an unknown cluster is kept")
	}
}

// TestWhatAStreamLeavesOpenIsTold: calls whose response will not arrive, and sandboxes that were not released.
func TestWhatAStreamLeavesOpenIsTold(t *testing.T) {
	h := newHub(t, handler{})
	told := make(chan *federationv1.RelayLost, 4)
	h.server.OnLost(func(l *federationv1.RelayLost) { told <- l })
	w := h.attach("a", "py")
	done := h.dispatch(t.Context(), "a", claimOf(""))
	d := w.dispatched()
	w.receipt(d)
	h.server.orphans.queueRelease("a", lateA)
	w.end()
	h.wantUnclear(done)
	var calls []uint64
	var sandboxes []string
	for len(calls) == 0 || len(sandboxes) == 0 {
		l := <-told
		for _, c := range l.GetCalls() {
			calls = append(calls, c.GetDispatch())
		}
		sandboxes = append(sandboxes, l.GetSandboxIds()...)
	}
	if !slices.Equal(calls, []uint64{d.GetId()}) || !slices.Equal(sandboxes, []string{lateA}) {
		t.Errorf("calls %v and sandboxes %v are told, want %d and %s", calls, sandboxes, d.GetId(), lateA)
	}
}

// settled waits until a cluster has nothing left to release.
func (h *hub) settled(id string) {
	h.Helper()
	h.eventually(func() error {
		left := h.server.orphans.of(id)
		return wait.If(len(left) == 0, fmt.Sprintf("cluster %s still has to release %v", id, left))
	})
}

// A worker may be back before the hub has noticed that its last stream has ended.
func TestALateEndOfAStreamReleasesWhatTheNextOneHasNamed(t *testing.T) {
	h := newHub(t, handler{})
	w := h.attach("a", "py")
	done := h.dispatch(t.Context(), "a", claimOf(""))
	d := w.dispatched()
	w.receipt(d)
	w = h.again("a", 2, unacknowledged(1, d.GetId(), lateA)) // replaces the first, whose call ends now or then
	h.wantUnclear(done)
	w.mustRelease(nil, lateA)
	h.settled("a")
}

// A release that fails is retried, on the same stream and on the next one, until its sandbox is gone.
func TestAReleaseIsOwedUntilItIsConfirmed(t *testing.T) {
	h := newHub(t, handler{})
	w := h.attach("a", "py")
	done := h.dispatch(t.Context(), "a", claimOf(""))
	d := w.dispatched()
	w.receipt(d)
	w.end()
	h.wantUnclear(done)
	away := &federationv1.Error{Code: int32(codes.Unavailable), Message: "the API server is away"}
	w = h.again("a", 2, unacknowledged(1, d.GetId(), lateA))
	w.mustRelease(away, lateA)
	w.mustRelease(away, lateA)
	w.end()
	w = h.again("a", 3)
	w.mustRelease(&federationv1.Error{Code: int32(codes.NotFound), Message: "there is no such sandbox"}, lateA)
	h.settled("a")
}

// TestI15ASandboxIDOfAnotherClusterIsNotReleased, whichever way it arrives: named on a later stream or in a late response.
func TestI15ASandboxIDOfAnotherClusterIsNotReleased(t *testing.T) {
	h := newHub(t, handler{})
	w := h.attach("a", "py")
	var lost, own *federationv1.Dispatch
	for _, d := range []**federationv1.Dispatch{&lost, &own} {
		done := h.dispatch(t.Context(), "a", claimOf(""))
		*d = w.dispatched()
		h.wantUnclear(done)
	}
	const ofB = "01hzzzzzzzzzzzzzzzzzzzzzz1-b"
	w.answer(&federationv1.Answer{Id: lost.GetId(), Result: &federationv1.Answer_Sandbox{Sandbox: &sandboxv1.Sandbox{Id: ofB}}})
	w = h.again("a", 2, unacknowledged(1, lost.GetId(), ofB), unacknowledged(1, own.GetId(), lateA))
	w.mustRelease(nil, lateA)
	h.settled("a")
}

// TestI14AFloodOfOneClusterTakesNoRoomFromAnother: one cluster's names do not make the hub forget what another has lost.
func TestI14AFloodOfOneClusterTakesNoRoomFromAnother(t *testing.T) {
	o := newOrphans()
	o.addLost(callID{cluster: "b", term: "t", stream: 1, dispatch: 1})
	for n := range uint64(maxOrphans + 1) {
		o.addLost(callID{cluster: "a", term: "t", stream: 1, dispatch: n})
		o.addUnacknowledged(callID{cluster: "a", term: "t", stream: 2, dispatch: n}, lateA)
	}
	if o.addUnacknowledged(callID{cluster: "b", term: "t", stream: 1, dispatch: 1}, "late-b"); !slices.Equal(o.of("b"), []string{"late-b"}) {
		t.Errorf("b has to release %v", o.of("b"))
	}
}
