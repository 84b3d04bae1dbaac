// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// again opens a cluster's next stream.
func (h *hub) again(id string, stream uint64, unacknowledged ...*federationv1.Unacknowledged) *worker {
	h.Helper()
	w := h.dial(id)
	if frame := w.hello(&federationv1.Hello{Incarnation: 1, Stream: stream, Unacknowledged: unacknowledged}); frame.GetWelcome() == nil {
		h.Fatalf("cluster %s was not welcomed: %v", id, frame)
	}
	w.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Begin{Begin: &federationv1.Begin{Incarnation: 1}}})
	w.read()
	return w
}

func unacknowledged(stream, dispatch uint64, sandbox string) *federationv1.Unacknowledged {
	return &federationv1.Unacknowledged{Stream: stream, Dispatch: dispatch, SandboxId: sandbox}
}

// mustRelease wants a release of each, in any order, and answers them.
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

// A sandbox whose answer was lost with its stream is given back when the worker names it, whether its caller left before the
// stream ended or with it. One whose answer arrived stays, though the worker does not know that it did.
func TestASandboxThatWasLostWithItsStreamIsReleased(t *testing.T) {
	h := newHub(t, Options{})
	w := h.attach("a", "py")
	told := h.dispatch(t.Context(), "a", claimOf(""))
	first := w.dispatched()
	w.receipt(first)
	w.answer(&federationv1.Answer{Id: first.GetId(), Result: &federationv1.Answer_Sandbox{Sandbox: &sandboxv1.Sandbox{Id: "told-a"}}})
	if o := h.await(told); o.err != nil {
		t.Fatal(o.err)
	}
	late := h.dispatch(t.Context(), "a", claimOf(""))
	second := w.dispatched() // and no receipt
	if o := h.await(late); !errors.Is(o.err, ErrUnclear) {
		t.Fatal(o)
	}
	under := h.dispatch(t.Context(), "a", claimOf(""))
	third := w.dispatched()
	w.receipt(third)
	w.end()
	if o := h.await(under); !errors.Is(o.err, ErrUnclear) {
		t.Fatal(o)
	}
	w = h.again("a", 2, unacknowledged(1, first.GetId(), "told-a"), unacknowledged(1, second.GetId(), "late-a"), unacknowledged(1, third.GetId(), "under-a"))
	w.mustRelease(nil, "late-a", "under-a")
	h.settled("a")
}

// settled waits until a cluster is owed nothing.
func (h *hub) settled(id string) {
	h.Helper()
	h.eventually(func() error {
		if owed := h.server.orphans.of(id); len(owed) > 0 {
			return fmt.Errorf("cluster %s is still owed the release of %v", id, owed)
		}
		return nil
	})
}

// A worker may be back before the hub has noticed that its last stream is over.
func TestALateEndOfAStreamReleasesWhatTheNextOneHasNamed(t *testing.T) {
	h := newHub(t, Options{})
	w := h.attach("a", "py")
	done := h.dispatch(t.Context(), "a", claimOf(""))
	d := w.dispatched()
	w.receipt(d)
	w = h.again("a", 2, unacknowledged(1, d.GetId(), "late-a")) // replaces the first, whose call ends now or then
	if o := h.await(done); !errors.Is(o.err, ErrUnclear) {
		t.Fatal(o)
	}
	w.mustRelease(nil, "late-a")
	h.settled("a")
}

// A release that fails is tried again, on the same stream and on the next one, until its sandbox is gone.
func TestAReleaseIsOwedUntilItIsConfirmed(t *testing.T) {
	h := newHub(t, Options{})
	w := h.attach("a", "py")
	done := h.dispatch(t.Context(), "a", claimOf(""))
	d := w.dispatched()
	w.receipt(d)
	w.end()
	if o := h.await(done); !errors.Is(o.err, ErrUnclear) {
		t.Fatal(o)
	}
	away := &federationv1.Error{Code: int32(codes.Unavailable), Message: "the API server is away"}
	w = h.again("a", 2, unacknowledged(1, d.GetId(), "late-a"))
	w.mustRelease(away, "late-a")
	w.mustRelease(away, "late-a")
	w.end()
	w = h.again("a", 3)
	w.mustRelease(&federationv1.Error{Code: int32(codes.NotFound), Message: "there is no such sandbox"}, "late-a")
	h.settled("a")
}
