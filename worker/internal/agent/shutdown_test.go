// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

// A worker that must end ends the claims that wait, finishes what it has begun, accepts nothing more, and lets the hub read all
// of its answers before it ends the stream.
func TestAnOrderlyEndLosesNoAnswer(t *testing.T) {
	w, worker, s := newCluster(t, 1)
	const (
		granted = iota + 1
		waiting
		waitingWithKey
		releasing
		late
	)
	id := s.ask(granted, &federationv1.Dispatch{Call: w.claimCall("py", "")}).GetSandbox().GetId()
	s.dispatch(&federationv1.Dispatch{Id: waiting, Incarnation: 1, Call: w.claimCall("py", "")})
	s.dispatch(&federationv1.Dispatch{Id: waitingWithKey, Incarnation: 1, Call: w.claimCall("py", w.hash(1))})
	worker.awaitWaiting(2)

	// The API server hangs, so that the release is still under way when the end comes.
	w.Must(east.Up(w).Pause())
	s.dispatch(&federationv1.Dispatch{Id: releasing, Incarnation: 1, Call: &federationv1.Dispatch_Release{
		Release: &sandboxv1.ReleaseSandboxRequest{Id: id},
	}})
	s.next("receipt of the release", func(f *federationv1.WorkerFrame) bool { return f.GetReceipt().GetId() == releasing })
	ended := make(chan error, 1)
	go func() { ended <- worker.stop() }()

	answers := map[uint64]*federationv1.Answer{}
	collect := func(id uint64) *federationv1.Answer {
		for answers[id] == nil {
			a := s.next("answer", func(f *federationv1.WorkerFrame) bool { return f.GetAnswer() != nil }).GetAnswer()
			answers[a.GetId()] = a
		}
		return answers[id]
	}
	for id, want := range map[uint64]federationv1.Disposition{
		waiting:        federationv1.Disposition_REFUSED, // no Pod has it, so it may go to another cluster
		waitingWithKey: federationv1.Disposition_UNCLEAR, // the next leader is asked
	} {
		got := collect(id)
		if e := problemOf(got); got.GetDisposition() != want || e == nil || e.Reason != problem.Unavailable || e.RetryAfter <= 0 {
			t.Errorf("claim %d, which waited, is answered %v, want %v, UNAVAILABLE and when to come again", id, got, want)
		}
	}
	s.dispatch(&federationv1.Dispatch{Id: late, Incarnation: 1, Call: w.claimCall("py", "")})
	if got := collect(late); got.GetDisposition() != federationv1.Disposition_STALE_SESSION {
		t.Errorf("a claim that comes during the end is answered %v", got)
	}
	if answers[releasing] != nil {
		t.Errorf("the release was answered while the API server hung: %v", answers[releasing])
	}
	w.Must(east.Up(w).Resume())
	if got := collect(releasing); got.GetSandbox().GetId() != id {
		t.Errorf("the release that was under way is answered %v", got)
	}
	<-s.over
	w.Must(<-ended)
}

// awaitWaiting waits until so many claims wait for a Pod of py.
func (w *worker) awaitWaiting(want int32) {
	w.Helper()
	w.Eventually(fmt.Sprintf("%d claims to wait", want), func() error {
		stats, _ := w.claims.Stats(w.Key("py-main"))
		return wait.If(stats.Waiting == want, stats.Waiting)
	})
}

func problemOf(a *federationv1.Answer) *problem.Error {
	e := a.GetError()
	if e == nil {
		return nil
	}
	return problem.FromStatus(status.FromProto(&spb.Status{Code: e.GetCode(), Message: e.GetMessage(), Details: e.GetDetails()}), nil)
}
