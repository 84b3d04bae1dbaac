// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/link"
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

// told is a stream with the last frames of a hub.
type told struct {
	link.Stream
	left []*federationv1.HubFrame
}

func (s *told) Recv() (*federationv1.HubFrame, error) {
	if len(s.left) == 0 {
		return nil, io.EOF
	}
	next := s.left[0]
	s.left = s.left[1:]
	return next, nil
}

// A stream whose own side has ended ends with the hub's, however many acknowledgements come before.
func TestAStreamThatHasSentAllReadsToItsEnd(t *testing.T) {
	ack := &federationv1.HubFrame{Body: &federationv1.HubFrame_HeartbeatAck{HeartbeatAck: &federationv1.HeartbeatAck{}}}
	stream := &told{}
	for range 2 * window {
		stream.left = append(stream.left, ack)
	}
	u := &uplink{
		stream: stream, clock: clock.RealClock{}, acks: make(chan *federationv1.HubFrame, window), sentAll: make(chan struct{}),
	}
	close(u.sentAll)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := u.read(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("it ended with %v, %d frames unread", err, len(stream.left))
	}
}
