// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/frametest"
)

// forgetful is a registry without a memory.
type forgetful struct{}

func (forgetful) Load(context.Context) ([]fleet.Record, error) { return nil, nil }
func (forgetful) Save(context.Context, fleet.Record) error     { return nil }

// Any input of a stream, after its Begin, is accepted or ends the stream with a status; responses without a waiting caller are
// dropped, and a key index counts only as a whole.
func FuzzReader(f *testing.F) {
	holder := []*federationv1.KeyHolder{{KeyHash: "0123", Attempt: 1, SandboxId: "x-east"}}
	chunk := func(n uint32, last bool) *federationv1.WorkerFrame {
		return &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Report{Report: &federationv1.Report{
			Sequence: 1, Chunk: n, Complete: true, Last: last, Keys: holder}}}
	}
	answer := func(id uint64, a *federationv1.Answer) *federationv1.WorkerFrame {
		a.Id = id
		return &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Answer{Answer: a}}
	}
	receipt := &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Receipt{Receipt: &federationv1.Receipt{Id: 1}}}
	granted := &federationv1.Answer{Disposition: federationv1.Disposition_DONE,
		Result: &federationv1.Answer_Sandbox{Sandbox: &sandboxv1.Sandbox{Id: "x-east"}}}
	f.Add(frametest.Join(f, chunk(0, false), chunk(1, true)))
	f.Add(frametest.Join(f, chunk(0, false), chunk(2, true), chunk(1, true)))
	f.Add(frametest.Join(f, receipt, answer(1, granted), answer(1, granted), receipt))
	f.Add(frametest.Join(f, answer(7, &federationv1.Answer{}), &federationv1.WorkerFrame{},
		&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Hello{}}))
	f.Add(frametest.Join(f, &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Ended{Ended: &federationv1.Ended{Batch: 1,
		Sandboxes: []*federationv1.EndedSandbox{nil}}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		view, err := fleet.New(t.Context(), fleet.Options{Clock: clock.RealClock{}, Registry: forgetful{}})
		must.Succeed(t, err)
		session, _, refused := view.Connect(fleet.Peer{ClusterID: "east"}, &federationv1.Hello{Protocol: 1, ClusterUid: "u", Term: "t",
			Stream: 1})
		if refused != nil {
			t.Fatal(refused)
		}
		defer session.Close()
		must.Succeed(t, session.Begin(&federationv1.Begin{Incarnation: 1}))
		indexes := 0
		s := NewServer(Options{Fleet: view, Clock: clock.RealClock{}})
		counts := handler{onKeys: func(string, []*federationv1.KeyHolder) { indexes++ }}
		c := s.newConn("east", &federationv1.Hello{}, session, counts, logr.Discard())
		waiting := c.table.add(claimOf("0123"))
		answers, lasts := 0, 0
		for _, frame := range frametest.Cut(data) {
			if a := frame.GetAnswer(); a != nil && a.GetId() == waiting.dispatch.GetId() {
				answers++
			}
			if frame.GetReport().GetComplete() && frame.GetReport().GetLast() {
				lasts++
			}
			if err := c.handle(frame); err != nil {
				break
			}
			for len(c.acks) > 0 {
				<-c.acks
			}
		}
		if len(waiting.answer) != min(answers, 1) || indexes > lasts {
			t.Fatalf("%d answers for %d that came, %d indexes of %d reports", len(waiting.answer), answers, indexes, lasts)
		}
	})
}
