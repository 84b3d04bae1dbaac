// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/wait"
)

// A worker repeats the furthest mark of the hub's ledger in each Hello, and its successor the stored one.
func TestTheLedgersMarkIsRemembered(t *testing.T) {
	w := newWorld(t)
	first := w.lead(clusterID)
	s := w.hub.session()
	if s.hello.GetLedger() != nil {
		t.Fatalf("a new worker remembers %v", s.hello.GetLedger())
	}
	mark := func(id string, revision uint64) *federationv1.LedgerMark {
		return &federationv1.LedgerMark{Id: id, Revision: revision, Proof: "p." + id, Commits: revision, CommitsProof: "c." + id}
	}
	beat := uint64(100)
	tell := func(m *federationv1.LedgerMark) {
		beat++
		ack := &federationv1.HeartbeatAck{Number: beat, Ledger: m}
		s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_HeartbeatAck{HeartbeatAck: ack}})
	}
	tell(mark("a", 7))
	tell(mark("a", 5))                                                 // of another replica
	tell(&federationv1.LedgerMark{Id: "a", Revision: 9, Proof: "p.a"}) // of a store that was set back, with higher revisions
	tell(nil)
	w.Eventually("the mark", func() error { return remembers(first.agent, mark("a", 7)) })
	close(s.hangUp)
	s = w.hub.session()
	if diff := s.hello.GetLedger(); !proto.Equal(diff, mark("a", 7)) {
		t.Errorf("the next stream names %v", diff)
	}
	tell(mark("b", 1))
	w.Eventually("the new ledger's mark", func() error { return remembers(first.agent, mark("b", 1)) })
	w.Must(first.agent.store.keepLedger(w.Context(), first.agent.ledger.Load()))
	w.Must(first.stop())

	w.lead(clusterID)
	if got := w.hub.session().hello.GetLedger(); !proto.Equal(got, mark("b", 1)) {
		t.Errorf("the next leader names %v", got)
	}
}

func remembers(a *Agent, want *federationv1.LedgerMark) error {
	got := a.ledger.Load()
	return wait.If(proto.Equal(got, want), got)
}

func TestParseLedger(t *testing.T) {
	mark := &federationv1.LedgerMark{Id: "a", Revision: 1 << 60, Proof: "x.y"}
	counted := &federationv1.LedgerMark{Id: "a", Revision: 1 << 60, Proof: "x.y", Commits: 1 << 50, CommitsProof: "z"}
	if got := withCommits(parseLedger(formatLedger(counted)), formatCommits(counted)); !proto.Equal(got, counted) {
		t.Errorf("%v came back as %v", counted, got)
	}
	for _, text := range []string{"", " ", "0 ", "1", "1 2 3", "-1 z", "1 " + strings.Repeat("x", maxLedgerText)} {
		if got := withCommits(parseLedger(formatLedger(mark)), text); !proto.Equal(got, mark) || withCommits(nil, text) != nil {
			t.Errorf("%.20q was read as %v", text, got)
		}
	}
	if got := parseLedger(formatLedger(mark)); !proto.Equal(got, mark) {
		t.Errorf("%v came back as %v", mark, got)
	}
	for _, text := range []string{"", "a", "a b c", "a 1", "a 1 c d", "a -1 c", "a 1 " + strings.Repeat("x", maxLedgerText)} {
		if got := parseLedger(text); got != nil {
			t.Errorf("%.20q was read as %v", text, got)
		}
	}
}
