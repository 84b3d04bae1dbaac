// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/segment"
)

func seg(name string, ready int32) *segment.Segment {
	shape := segment.Share(segment.Shape{Image: strings.Repeat("i", 200)})
	return segment.New(segment.Key{Namespace: "default", Name: name}).With(segment.Member{Name: "main", ReadyIdle: ready, Shape: shape})
}

func TestReportsAreCutIntoChunks(t *testing.T) {
	var all []*segment.Segment
	for n := range 20_000 {
		all = append(all, seg(fmt.Sprint("env-", n), 1))
	}
	var keys []*federationv1.KeyHolder
	for n := range 10_000 {
		keys = append(keys, &federationv1.KeyHolder{KeyHash: strings.Repeat("k", 32), SandboxId: fmt.Sprint(n), PodUid: strings.Repeat("u", 36)})
	}
	var o outbox
	chunks := o.complete(all, keys)
	if len(chunks) < 5 {
		t.Errorf("%d chunks", len(chunks))
	}
	segments, holders := 0, 0
	for i, c := range chunks {
		frame := &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Report{Report: c}}
		if size := proto.Size(frame); size > link.MaxFrame {
			t.Errorf("chunk %d has %d bytes", i, size)
		}
		if c.GetChunk() != uint32(i) || c.GetLast() != (i == len(chunks)-1) || !c.GetComplete() || c.GetSequence() != 1 {
			t.Errorf("chunk %d is %d of report %d, last %t", i, c.GetChunk(), c.GetSequence(), c.GetLast())
		}
		segments += len(c.GetSegments())
		holders += len(c.GetKeys())
	}
	if last := chunks[len(chunks)-1]; segments != len(all) || holders != len(keys) || last.GetDigest() != o.reported.Digest() {
		t.Errorf("%d segments and %d keys", segments, holders)
	}
}

func TestDeltasSayWhatDiffers(t *testing.T) {
	o := outbox{sequence: 7}
	if got := o.complete(nil, nil); len(got) != 1 || !got[0].GetLast() || got[0].GetSequence() != 8 {
		t.Errorf("the complete report of an empty cluster is %v", got)
	}
	key := func(name string) segment.Key { return segment.Key{Namespace: "default", Name: name} }
	if got := o.delta(segment.Delta{Changed: []*segment.Segment{seg("a", 1), seg("b", 1)}})[0]; len(got.GetSegments()) != 2 ||
		got.GetComplete() {
		t.Errorf("the first delta is %v", got)
	}
	got := o.delta(segment.Delta{Changed: []*segment.Segment{seg("a", 1), seg("b", 2)}, Removed: []segment.Key{key("never")}})[0]
	if len(got.GetSegments()) != 1 || got.GetSegments()[0].GetKey().GetName() != "b" || len(got.GetRemoved()) != 0 {
		t.Errorf("the second delta is %v", got)
	}
	if got := o.delta(segment.Delta{Changed: []*segment.Segment{seg("b", 2)}}); got != nil {
		t.Errorf("nothing differs, and it reports %v", got)
	}
	covered := o.coveredBy()
	if got := o.delta(segment.Delta{}); len(got) != 1 || got[0].GetSequence() != covered {
		t.Errorf("report %d was promised, and it reports %v", covered, got)
	}
	if got := o.delta(segment.Delta{}); got != nil {
		t.Errorf("a promise is kept twice: %v", got)
	}
}

func TestCredit(t *testing.T) {
	o := outbox{sequence: 100, acked: 100}
	for n := range window {
		if !o.ready() {
			t.Fatalf("no credit after %d reports", n)
		}
		o.delta(segment.Delta{Changed: []*segment.Segment{seg("a", int32(n))}})
	}
	if o.ready() {
		t.Error("there is credit beyond the window")
	}
	o.ack(999) // never sent
	if o.ready() {
		t.Error("an acknowledgement of what was never sent gives credit")
	}
	o.ack(101)
	o.ack(50) // late
	if !o.ready() || o.acked != 101 {
		t.Errorf("acknowledged up to %d", o.acked)
	}
}
