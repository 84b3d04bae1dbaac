// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/segment"
)

// reattach connects with what the owner was acknowledged, and reports whether the stream may start with deltas.
func (o *owner) reattach(f *Fleet, change func(*federationv1.Hello)) bool {
	o.t.Helper()
	hello := o.nextHello()
	hello.Acknowledged, hello.Digest = o.sequence, o.truth.Digest()
	if change != nil {
		change(hello)
	}
	session, welcome := o.hail(f, hello)
	must.Succeed(o.t, session.Begin(&federationv1.Begin{Incarnation: hello.GetIncarnation()}))
	o.session = session
	return welcome.GetDeltas()
}

// TestAStreamMayStartWithDeltas: at the replica that the worker comes from and at one that has its view by relay, and nowhere else.
func TestAStreamMayStartWithDeltas(t *testing.T) {
	for name, c := range map[string]struct {
		hello func(*federationv1.Hello)
		miss  bool // the other replica has no relay
		want  bool
	}{
		"the same view":              {want: true},
		"a replica without the view": {miss: true},
		"another report":             {hello: func(h *federationv1.Hello) { h.Acknowledged++ }},
		"an earlier report":          {hello: func(h *federationv1.Hello) { h.Acknowledged-- }},
		"another digest":             {hello: func(h *federationv1.Hello) { h.Digest++ }},
		"another term":               {hello: func(h *federationv1.Hello) { h.Term, h.Incarnation = "later", h.Incarnation+1 }},
		"another incarnation":        {hello: func(h *federationv1.Hello) { h.Incarnation++ }},
		"nothing acknowledged":       {hello: func(h *federationv1.Hello) { h.Acknowledged, h.Digest = 0, 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newFleet(t, &memoryRegistry{}), newFleet(t, &memoryRegistry{})
			o := connected(t, a, "east", envs(40)...)
			o.change(pool(env(3), 9))
			if !c.miss {
				settle(newWire(t, a, b, "a"))
			}
			if got := o.reattach(b, c.hello); got != c.want {
				t.Errorf("the other replica: deltas: %t, want %t", got, c.want)
			}
			if got := o.reattach(a, c.hello); !c.miss && got != c.want {
				t.Errorf("its own replica: deltas: %t, want %t", got, c.want)
			}
		})
	}
}

// TestI1NoDeltasAfterARestoredEtcd: what the first report omits is lost, so that it must be complete.
func TestI1NoDeltasAfterARestoredEtcd(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	o := connected(t, f, "east", pool(env(1), 1))
	if o.reattach(f, func(h *federationv1.Hello) { h.ResourceVersion = 1 }) {
		t.Error("deltas")
	}
}

// TestDeltasAfterAReattach: the first report has what changed meanwhile, and the whole key index, which counts.
func TestDeltasAfterAReattach(t *testing.T) {
	a, b := newFleet(t, &memoryRegistry{}), newFleet(t, &memoryRegistry{})
	o := connected(t, a, "east", envs(40)...)
	settle(newWire(t, a, b, "a"))
	if !o.reattach(b, nil) {
		t.Fatal("no deltas")
	}
	changed := o.truth.Apply(segment.Delta{Changed: []*segment.Segment{pool(env(1), 7)}, Removed: []segment.Key{env(2)}})
	plain := o.report(changed, false, 1<<20)
	if ack := o.deliver(plain); !ack.GetSendComplete() {
		t.Errorf("a delta without the key index got %v, want a request for a complete report", ack)
	}
	o.sequence-- // it did not count
	first := o.report(changed, false, 1)
	for _, chunk := range first {
		chunk.Index = true
	}
	first[len(first)-1].Keys = []*federationv1.KeyHolder{{KeyHash: "k", Attempt: 1}}
	if ack := o.deliver(first); ack == nil || ack.GetSendComplete() {
		t.Fatalf("the first delta got %v", ack)
	}
	keys, whole := o.session.Keys()
	if !whole || len(keys) != 1 {
		t.Errorf("the key index is %v (whole: %t)", keys, whole)
	}
	wantTruth(t, b, o)
	// The stream is synced: what follows needs no index, and has none.
	if ack := o.change(pool(env(5), 5)); ack == nil || ack.GetSendComplete() {
		t.Errorf("a later delta got %v", ack)
	}
	if _, whole := o.session.Keys(); whole {
		t.Error("a later delta is taken for a key index")
	}
	wantTruth(t, b, o)
	// One with an index has a whole one: a sandbox has appeared.
	again := o.report(o.truth.Apply(segment.Delta{Changed: []*segment.Segment{pool(env(6), 6)}}), false, 1<<20)
	again[0].Index, again[0].Keys = true, []*federationv1.KeyHolder{{KeyHash: "k", Attempt: 1}, {KeyHash: "l", Attempt: 1}}
	if ack := o.deliver(again); ack == nil || ack.GetSendComplete() {
		t.Fatalf("a later delta with an index got %v", ack)
	}
	if keys, whole := o.session.Keys(); !whole || len(keys) != 2 {
		t.Errorf("the later key index is %v (whole: %t)", keys, whole)
	}
	wantTruth(t, b, o)
}

// TestAReportOfAReplacedStreamHasNoKeyIndex, not even that of the report before it; because the work on it would end that on a newer one.
func TestAReportOfAReplacedStreamHasNoKeyIndex(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	o := connected(t, f, "east", envs(2)...)
	replaced := o.session
	if _, whole := replaced.Keys(); !whole {
		t.Fatal("the complete report has no key index")
	}
	o.attach(f)
	if ack := replaced.Report(o.completeReport(1 << 20)[0]); ack != nil {
		t.Errorf("a report of a replaced stream got %v", ack)
	}
	if _, whole := replaced.Keys(); whole {
		t.Error("a report that did not count has the key index of the one before")
	}
}
