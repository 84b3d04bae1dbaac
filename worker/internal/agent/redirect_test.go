// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// A worker that is asked to attach to another replica lets the calls under way finish, ends the stream, and attaches at once.
func TestARedirectedStreamEndsAfterItsCalls(t *testing.T) {
	w, worker, s := newCluster(t, 1)
	id := s.ask(1, &federationv1.Dispatch{Call: w.claimCall("py", "")}).GetSandbox().GetId()

	w.Must(east.Up(w).Pause())
	s.dispatch(&federationv1.Dispatch{Id: 2, Incarnation: 1, Call: &federationv1.Dispatch_Release{
		Release: &sandboxv1.ReleaseSandboxRequest{Id: id},
	}})
	s.next("receipt of the release", func(f *federationv1.WorkerFrame) bool { return f.GetReceipt().GetId() == 2 })
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Redirect{Redirect: &federationv1.Redirect{Reason: "it stops"}}})
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Redirect{Redirect: &federationv1.Redirect{Reason: "again"}}})
	w.Must(east.Up(w).Resume())
	if got := s.next("answer", func(f *federationv1.WorkerFrame) bool { return f.GetAnswer() != nil }).GetAnswer(); got.GetError() != nil {
		t.Errorf("the call under way got %v", got)
	}
	<-s.over
	next := w.hub.session()
	if got := next.hello.GetStream(); got != 2 {
		t.Errorf("it came back with stream %d", got)
	}
	for line := range worker.log {
		if strings.Contains(line, "no link") {
			if !strings.Contains(line, "attach to another one: it stops") {
				t.Errorf("logged %s", line)
			}
			break
		}
	}
	if got := next.ask(1, &federationv1.Dispatch{Call: w.claimCall("py", "")}); got.GetSandbox() == nil {
		t.Errorf("a claim on the next stream got %v", got)
	}
}
