// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/fleet"
)

// The fleet makes the next message of a stream once the last one was sent; because a message that waits has its memory, and what changes
// meanwhile would be sent twice.
func TestForeignMessagesAreMadeOneByOne(t *testing.T) {
	h := newHub(t, handler{})
	h.attach("west", "env")
	hello := &federationv1.Hello{Protocol: 1, Stream: 1, ClusterUid: "uid-east", Term: "term-east", Incarnation: 1}
	session, _, refused := h.fleet.Connect(fleet.Peer{ClusterID: "east"}, hello)
	if refused != nil {
		t.Fatal(refused)
	}
	h.must(session.Begin(&federationv1.Begin{Incarnation: 1}))
	session.Report(&federationv1.Report{Sequence: 1, Last: true, Complete: true})
	c := h.server.newConn("east", hello, session, handler{}, logr.Discard())
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.pump(ctx) }()
	defer func() { end(); <-done }()
	next := func(within time.Duration) []string {
		select {
		case frame := <-c.foreign:
			return frame.GetForeign().GetKnown()
		case <-time.After(within):
			return nil
		}
	}
	if first := next(patience); len(first) != 1 || first[0] != "west" {
		t.Fatalf("the first message is of %v, want west", first)
	}
	h.attach("north", "env")
	const pause = 600 * time.Millisecond // several times the fleet's
	if early := next(pause); early != nil {
		t.Errorf("a message of %v was made before the last one was sent", early)
	}
	c.sent <- struct{}{}
	if second := next(patience); len(second) != 1 || second[0] != "north" {
		t.Errorf("the second message is of %v, want north", second)
	}
}
