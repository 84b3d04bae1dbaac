// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

// wire is a relay from one replica to another, without a network: what was sent arrives when the test says so.
type wire struct {
	t      testing.TB
	relay  *Relay
	inlet  *Inlet
	counts map[string]int // frames by kind
}

func newWire(t testing.TB, from, to *Fleet, name string) *wire {
	w := &wire{t: t, relay: from.NewRelay(), inlet: to.NewInlet(name), counts: map[string]int{}}
	t.Cleanup(w.cut)
	return w
}

func (w *wire) cut() {
	w.inlet.Close()
	w.relay.Close()
}

// step delivers one frame.
func (w *wire) step() bool {
	w.t.Helper()
	frame := w.relay.next()
	if frame == nil {
		return false
	}
	switch body := frame.GetBody().(type) {
	case *federationv1.RelayFrame_Report:
		w.counts["report"]++
		if body.Report.GetReport().GetComplete() {
			w.counts["complete"]++
		}
	case *federationv1.RelayFrame_Attached:
		w.counts["attached"]++
	}
	cluster, ask, err := w.inlet.Take(proto.CloneOf(frame))
	must.Succeed(w.t, err)
	if ask {
		w.counts["asked"]++
		w.relay.Complete(cluster)
	}
	return true
}

// settle delivers all frames of all wires.
func settle(wires ...*wire) {
	for again := true; again; {
		again = false
		for _, w := range wires {
			for w.step() {
				again = true
			}
		}
	}
}

func wantWhere(t testing.TB, f *Fleet, id, peer string) {
	t.Helper()
	if at, here := f.Where(id); at != peer || here != (peer == "") {
		t.Fatalf("%s is attached at %q (here: %t), want %q", id, at, here, peer)
	}
}

func TestARelayedViewEqualsTheOwners(t *testing.T) {
	a, b := newFleet(t, &memoryRegistry{}), newFleet(t, &memoryRegistry{})
	early := connected(t, a, "early", envs(3000)...)
	w := newWire(t, a, b, "a")
	late := newOwner(t, "late")
	late.hosting = &federationv1.Hosting{Host: "mgmt-0", Latency: durationpb.New(time.Millisecond)}
	late.connect(a)
	settle(w)
	wantTruth(t, b, early)
	if w.counts["complete"] < 2 || w.counts["asked"] != 1 { // the second one arrived while the relay was there
		t.Errorf("a replica without a view is sent %v", w.counts)
	}
	late.change(envs(40)...)
	late.remove(env(3), env(4))
	early.change(pool(env(7), 9))
	early.remove(env(8))
	settle(w)
	wantTruth(t, b, early)
	wantTruth(t, b, late)
	wantWhere(t, b, "early", "a")
	if c := b.Cluster("late"); c.GetReplica() != "a" || c.GetVersion() != "w" || c.GetHosted().GetHost() != "mgmt-0" ||
		c.GetHosted().GetLatency().AsDuration() != time.Millisecond || b.Cluster("early").GetHosted() != nil {
		t.Errorf("shown as %v", c)
	}
}

// TestI5ABrokenRelayLeavesTheParts: the clusters are the last choice until the relay is back, and then need no complete report.
func TestI5ABrokenRelayLeavesTheParts(t *testing.T) {
	a, b := newFleet(t, &memoryRegistry{}), newFleet(t, &memoryRegistry{})
	o := connected(t, a, "east", envs(60)...)
	w := newWire(t, a, b, "a")
	settle(w)
	w.cut()
	wantTruth(t, b, o)
	if health := b.cluster("east").Health(); !health.LastChoice() {
		t.Errorf("after the relay broke, the health is %s", health)
	}
	wantWhere(t, b, "east", "a")
	o.change(pool(env(5), 5))
	w = newWire(t, a, b, "a")
	settle(w)
	wantTruth(t, b, o)
	if w.counts["complete"] != 1 { // the view has moved on while no relay told of it
		t.Errorf("sent %v, want one complete report", w.counts)
	}
	w.cut()
	w = newWire(t, a, b, "a")
	settle(w)
	o.change(pool(env(6), 6))
	o.complete() // equal: it changes nothing here
	settle(w)
	wantTruth(t, b, o)
	if w.counts["complete"] != 0 || w.counts["asked"] != 0 {
		t.Errorf("sent %v although the views were equal, want deltas alone", w.counts)
	}
	if health := b.cluster("east").Health(); health != router.Fresh {
		t.Errorf("the health is %s", health)
	}
}

// TestTheHighestStreamHasTheCluster: whichever replica a worker is attached to, the others follow.
func TestTheHighestStreamHasTheCluster(t *testing.T) {
	a, b := newFleet(t, &memoryRegistry{}), newFleet(t, &memoryRegistry{})
	ab, ba := newWire(t, a, b, "a"), newWire(t, b, a, "b")
	o := connected(t, a, "east", envs(40)...)
	settle(ab, ba)
	old := o.session
	late := &federationv1.RelayFrame{Body: &federationv1.RelayFrame_Attached{Attached: a.cluster("east").announcement(old)}}
	o.connect(b) // the stream to a is dead, and a does not know
	wantWhere(t, b, "east", "")
	settle(ba)
	if !ended(old) {
		t.Fatal("the dead stream stays attached")
	}
	wantWhere(t, a, "east", "b")
	settle(ab, ba)
	if len(ab.relay.lines) != 0 {
		t.Error("a replica relays a stream that was replaced elsewhere")
	}
	if ba.counts["complete"] != 0 {
		t.Errorf("moving a cluster sent %v, want deltas alone", ba.counts)
	}
	_, _, err := ab.inlet.Take(late)
	must.Succeed(t, err)
	wantWhere(t, b, "east", "")
	o.change(pool(env(2), 7))
	settle(ab, ba)
	wantTruth(t, a, o)
	wantTruth(t, b, o)
	o.newTerm("east-term-2")
	o.connect(a)
	settle(ab, ba)
	wantWhere(t, b, "east", "a")
	wantTruth(t, b, o)
	if o.session.incarnation.Load() != 2 {
		t.Errorf("incarnation %d", o.session.incarnation.Load())
	}
}

// TestI4ViewsAgreeWhereverAWorkerIsAttached moves a worker among three replicas, whose relays are late and break.
func TestI4ViewsAgreeWhereverAWorkerIsAttached(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		registry := &memoryRegistry{}
		names := []string{"a", "b", "c"}
		var fleets []*Fleet
		for range names {
			fleets = append(fleets, newFleet(t, registry))
		}
		wires := map[[2]int]*wire{}
		connect := func(i, j int) { wires[[2]int{i, j}] = newWire(t, fleets[i], fleets[j], names[i]) }
		pairs := [][2]int{{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}}
		for _, p := range pairs {
			connect(p[0], p[1])
		}
		at := 0
		o := connected(t, fleets[at], "east", envs(30)...)
		for range 300 {
			p := pairs[rnd.IntN(len(pairs))]
			switch rnd.IntN(12) {
			case 0:
				if rnd.IntN(4) == 0 {
					o.newTerm(fmt.Sprintf("%s+%d", o.term, rnd.IntN(1000)))
				}
				if at = rnd.IntN(3); !reattach(o, fleets[at]) {
					t.Fatalf("seed %d: refused", seed)
				}
			case 1:
				wires[p].cut()
				connect(p[0], p[1])
			case 2, 3:
				o.remove(env(rnd.IntN(30)))
			case 4, 5, 6:
				o.change(pool(env(rnd.IntN(30)), int32(rnd.IntN(100))))
			default:
				for range rnd.IntN(5) {
					wires[p].step()
				}
			}
		}
		all := make([]*wire, 0, len(pairs))
		for _, p := range pairs {
			all = append(all, wires[p])
		}
		settle(all...)
		o.heartbeat()
		settle(all...)
		for i, f := range fleets {
			want := names[at]
			if i == at {
				want = ""
			}
			wantWhere(t, f, "east", want)
			wantTruth(t, f, o)
		}
		for _, w := range all {
			w.cut()
		}
	}
}

// reattach connects as a worker does that was told nothing of what happened elsewhere.
func reattach(o *owner, f *Fleet) bool {
	o.attach(f)
	for range 3 {
		if ack := o.complete(); !ack.GetSendComplete() {
			return true
		}
	}
	return false
}

// TestRelayedSessionsGetNoForeignSegments: their replica sends these. A worker that is attached here does get those of relayed clusters.
func TestRelayedSessionsGetNoForeignSegments(t *testing.T) {
	a, b := newFleet(t, &memoryRegistry{}), newFleet(t, &memoryRegistry{})
	far, near := connected(t, a, "far", pool(env(1), 1)), connected(t, b, "near", pool(env(1), 2))
	w := newWire(t, a, b, "a")
	settle(w)
	far.change(pool(env(1), 4))
	near.change(pool(env(1), 5))
	settle(w)
	if s := b.cluster("far").session.Load(); s.via == "" || s.outbox.opened || s.outbox.size() != 0 {
		t.Errorf("the outbox of a relayed session has %d segments", s.outbox.size())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for got := int32(0); got != 4; {
		m, err := near.session.NextForeign(ctx)
		must.Succeed(t, err)
		for _, e := range m.GetEnvs() {
			got = e.GetSegments()[0].GetMembers()[0].GetReadyIdle()
		}
	}
}

// TestRelayedHeartbeatsKeepAClusterFresh: liveness is judged here, by this replica's clock.
func TestRelayedHeartbeatsKeepAClusterFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := &memoryRegistry{}
		a, b := newFleet(t, registry), newFleet(t, registry)
		w := newWire(t, a, b, "a")
		o := connected(t, a, "east", pool(env(1), 1))
		settle(w)
		for range 20 {
			time.Sleep(heartbeatInterval)
			o.heartbeat()
			settle(w)
		}
		want := func(h router.Health) {
			t.Helper()
			b.cluster("east").evaluate()
			if is := b.cluster("east").Health(); is != h {
				t.Fatalf("health %s, want %s", is, h)
			}
		}
		want(router.Fresh)
		o.session.NoReceipt() // of a worker that is frozen, and sends nothing more
		settle(w)
		want(router.NoReceipt)
		o.session.Receipt()
		o.heartbeat()
		settle(w)
		want(router.Fresh)
		for range 2 { // the first one is over without a receipt
			o.session.NoReceipt()
			settle(w)
			want(router.NoReceipt)
			for range recoverAfter/heartbeatInterval + 1 {
				time.Sleep(heartbeatInterval)
				o.heartbeat()
				settle(w)
			}
			want(router.Fresh)
		}
		o.change(pool(env(2), 1))
		o.remove(env(2)) // leaves a tombstone
		settle(w)
		before := len(registry.records)
		time.Sleep(lastChoiceAfter)
		want(router.Silent)
		time.Sleep(unreachableAfter)
		want(router.Unreachable)
		wantTruth(t, b, o)
		if b.cluster("east").unsaved || len(registry.records) != before {
			t.Error("a replica saves what another one saves")
		}
	})
}

// TestI10APeerThatReadsSlowlyIsOwedACompleteReport: what waits for it is bounded, and it misses nothing.
func TestI10APeerThatReadsSlowlyIsOwedACompleteReport(t *testing.T) {
	a, b := newFleet(t, &memoryRegistry{}), newFleet(t, &memoryRegistry{})
	o := connected(t, a, "east")
	w := newWire(t, a, b, "a")
	settle(w)
	clear(w.counts)
	for i := range 3000 {
		o.change(pool(env(i%50), int32(i)))
		l := w.relay.lines[a.cluster("east")]
		if len(l.deltas) > maxDeltas || l.items > maxDeltaItems || len(w.relay.due) > 1 {
			t.Fatalf("%d deltas of %d segments wait", len(l.deltas), l.items)
		}
	}
	settle(w)
	wantTruth(t, b, o)
	if w.counts["complete"] != 1 {
		t.Errorf("sent %v", w.counts)
	}
}

// TestI5ARelayedMassRemovalNeedsTwoCompleteReports, as one of a stream does.
func TestI5ARelayedMassRemovalNeedsTwoCompleteReports(t *testing.T) {
	registry := &memoryRegistry{}
	a, b := newFleet(t, registry), newFleet(t, registry)
	o := connected(t, b, "east", envs(60)...)
	full := o.truth.Clone()
	for i := range 50 {
		o.truth.Remove(env(i))
	}
	o.connect(a) // whose view was empty
	w := newWire(t, a, b, "a")
	for w.counts["complete"] == 0 {
		if !w.step() {
			t.Fatalf("sent %v", w.counts)
		}
	}
	if d := segment.Diff(held(b, "east"), full); len(d.Changed) > 0 {
		t.Fatalf("one complete report removed %d Envs", len(d.Changed))
	}
	settle(w)
	wantTruth(t, b, o)
	if w.counts["complete"] != 2 {
		t.Errorf("sent %v", w.counts)
	}
}

// TestARelayIsRefused by the facts alone.
func TestARelayIsRefused(t *testing.T) {
	last := streamID{"t1", 5, 3}
	for name, tc := range map[string]struct {
		change func(*relayedFacts)
		want   Refusal
	}{
		"the next stream":                  {func(f *relayedFacts) { f.stream.stream = 4 }, None},
		"an older stream":                  {func(f *relayedFacts) { f.stream.stream = 2 }, OlderStream},
		"the stream that is attached here": {func(f *relayedFacts) { f.attached, f.direct = true, true }, OlderStream},
		"the same one, once more":          {func(f *relayedFacts) { f.attached = true }, None},
		"the next term":                    {func(f *relayedFacts) { f.stream = streamID{"t2", 6, 1} }, None},
		"a term beside it": {func(f *relayedFacts) {
			f.stream, f.attached = streamID{"t2", 5, 9}, true
		}, OlderStream},
		"an incarnation that was replaced":              {func(f *relayedFacts) { f.stream = streamID{"t0", 4, 9} }, OlderStream},
		"a name that is not registered here yet":        {func(f *relayedFacts) { f.registeredUID, f.unknown = "", true }, None},
		"a name whose cluster was forgotten and lifted": {func(f *relayedFacts) { f.registeredUID = "" }, RefusedForgotten},
		"a forgotten cluster":                           {func(f *relayedFacts) { f.forgotten = true }, RefusedForgotten},
		"another cluster":                               {func(f *relayedFacts) { f.uid = "v" }, IdentityMismatch},
		"no uid":                                        {func(f *relayedFacts) { f.uid = "" }, IdentityMismatch},
		"a quarantined one":                             {func(f *relayedFacts) { f.quarantined = true }, RefusedQuarantined},
	} {
		f := relayedFacts{uid: "u", registeredUID: "u", stream: last, last: last, highest: 5}
		tc.change(&f)
		if got := decideRelayed(f); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestI4AForgottenClusterIsNotRelayed: the registry here decides, not a peer that has not read it yet.
func TestI4AForgottenClusterIsNotRelayed(t *testing.T) {
	a, b := newFleet(t, &memoryRegistry{}), newFleet(t, &memoryRegistry{})
	o := connected(t, a, "east", pool(env(1), 1))
	w := newWire(t, a, b, "a")
	settle(w)
	w.inlet.flows["east"].end()
	operate(t, b.Forget, "east")
	o.heartbeat()
	o.change(pool(env(2), 1))
	settle(w)
	if held(b, "east").Len() != 0 {
		t.Errorf("a forgotten cluster has %d Envs again", held(b, "east").Len())
	}
	operate(t, b.Undrain, "east")
}

func TestI14APeersFramesAreBounded(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	in := f.NewInlet("a")
	defer in.Close()
	valid := func() *federationv1.RelayAttached {
		return &federationv1.RelayAttached{ClusterId: "east", ClusterUid: "u", Term: "t", Incarnation: 1, Stream: 1}
	}
	for name, change := range map[string]func(*federationv1.RelayAttached){
		"cluster_id":  func(a *federationv1.RelayAttached) { a.ClusterId = "East_1" },
		"incarnation": func(a *federationv1.RelayAttached) { a.Incarnation = 0 },
		"stream":      func(a *federationv1.RelayAttached) { a.Stream = 0 },
		"term":        func(a *federationv1.RelayAttached) { a.Term = strings.Repeat("x", segment.MaxUID+1) },
		"version":     func(a *federationv1.RelayAttached) { a.Version = strings.Repeat("x", segment.MaxUID+1) },
		"cluster_uid": func(a *federationv1.RelayAttached) { a.ClusterUid = strings.Repeat("x", segment.MaxUID+1) },
	} {
		a := valid()
		change(a)
		_, _, err := in.Take(&federationv1.RelayFrame{Body: &federationv1.RelayFrame_Attached{Attached: a}})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, seen := range map[string]*federationv1.RelayContact{
		"cluster_id": {ClusterId: "East_1", ClusterUid: "u", Term: "t"},
		"term":       {ClusterId: "east", ClusterUid: "u", Term: strings.Repeat("x", segment.MaxUID+1)},
	} {
		_, _, err := in.Take(&federationv1.RelayFrame{Body: &federationv1.RelayFrame_Contact{Contact: seen}})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s of a contact: %v", name, err)
		}
	}
	seen := &federationv1.RelayContact{ClusterId: "east", ClusterUid: "u", Term: "t"}
	if _, _, err := in.Take(&federationv1.RelayFrame{Body: &federationv1.RelayFrame_Contact{Contact: seen}}); err != nil {
		t.Errorf("a contact of a cluster that is not known: %v", err)
	}
	if f.cluster("east") != nil {
		t.Error("a frame that is not valid counts")
	}
	for i := range maxInlet + 1 {
		a := valid()
		a.ClusterId = fmt.Sprintf("c-%d", i)
		in.flows[a.GetClusterId()] = &flow{attached: a}
		_, _, err := in.Take(&federationv1.RelayFrame{Body: &federationv1.RelayFrame_Attached{Attached: valid()}})
		if i >= maxInlet && err == nil {
			t.Error("a peer may tell of any number of clusters")
		}
		delete(in.flows, "east")
	}
	clear(in.flows)
	before := (&federationv1.RelayFrame{Body: &federationv1.RelayFrame_Report{Report: &federationv1.RelayReport{ClusterId: "nowhere"}}})
	if _, ask, err := in.Take(before); ask || err != nil {
		t.Errorf("a report before its cluster is attached: %t, %v", ask, err)
	}
}

// BenchmarkRelay is what one peer adds to a report of one changed Env: bytes on the wire, and the work at both ends.
func BenchmarkRelay(b *testing.B) {
	for name, peers := range map[string]int{"alone": 0, "one-peer": 1} {
		b.Run(name, func(b *testing.B) {
			a, to := newFleet(b, &memoryRegistry{}), newFleet(b, &memoryRegistry{})
			o := connected(b, a, "east", envs(1000)...)
			relay, inlet, bytes := (*Relay)(nil), to.NewInlet("a"), 0
			deliver := func() {
				for frame := relay.next(); frame != nil; frame = relay.next() {
					wire, err := proto.Marshal(frame)
					must.Succeed(b, err)
					bytes += len(wire)
					var got federationv1.RelayFrame
					must.Succeed(b, proto.Unmarshal(wire, &got))
					cluster, ask, err := inlet.Take(&got)
					must.Succeed(b, err)
					if ask {
						relay.Complete(cluster)
					}
				}
			}
			if peers > 0 {
				relay = a.NewRelay()
				deliver()
			}
			bytes = 0
			for i := 0; b.Loop(); i++ {
				o.change(pool(env(i%1000), int32(i)))
				if peers > 0 {
					deliver()
				}
			}
			b.ReportMetric(float64(bytes)/float64(b.N), "B/report")
		})
	}
}
