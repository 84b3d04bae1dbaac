// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/segment"
)

// hostile delivers an owner's reports the way no stream should: chunks lost, repeated, late, out of order, to the stream
// they belong to or to one that was replaced long ago. It remembers what would be wrong.
type hostile struct {
	t       testing.TB
	fleet   *Fleet
	owner   *owner
	old     []*Session
	sent    [][]*federationv1.Report // reports of this incarnation, in chunks, in the order of sending
	late    [][]*federationv1.Report // those of earlier ones
	version int64

	lasting map[segment.Key]bool  // reported in full once, never removed
	shown   map[segment.Key]int64 // highest version that the hub has shown
	gone    map[segment.Key]int64 // the version that the hub showed last before it removed the Env
}

func newHostile(t testing.TB) *hostile {
	h := &hostile{
		t: t, fleet: newFleet(t, &memoryRegistry{}), owner: newOwner(t, "east"),
		lasting: map[segment.Key]bool{}, shown: map[segment.Key]int64{}, gone: map[segment.Key]int64{},
	}
	for i := range 20 {
		h.touch(env(i))
		h.lasting[env(i)] = true
	}
	h.owner.connect(h.fleet)
	return h
}

func (h *hostile) touch(k segment.Key) *segment.Segment {
	h.version++
	s := pool(k, int32(h.version%7))
	s.Generation = h.version
	h.owner.truth.Put(s)
	return s
}

// step does one thing, chosen by op: some are what a worker does, the others what no network may do to it.
func (h *hostile) step(op, arg byte) {
	o := h.owner
	k := env(int(arg) % 30) // the upper ten come and go
	switch op % 10 {
	case 0, 1: // a change, whose report is not delivered yet
		other := segment.Key{Namespace: "x", Name: k.Name}
		h.sent = append(h.sent, o.report(segment.Delta{Changed: []*segment.Segment{h.touch(k), h.touch(other)}}, false, 1))
	case 2: // a removal of something that is not lasting
		if k = env(20 + int(arg)%10); o.truth.Remove(k) {
			h.sent = append(h.sent, o.report(segment.Delta{Removed: []segment.Key{k}}, false, 1))
		}
	case 3: // a complete report in chunks
		h.sent = append(h.sent, o.completeReport(1+int(arg)%5))
	case 4: // what was sent arrives in order
		for _, chunks := range h.sent {
			h.deliver(o.session, chunks)
		}
		h.forget()
	case 5: // any report of this incarnation arrives, once more or at last
		if len(h.sent) > 0 {
			h.deliver(o.session, h.sent[int(arg)%len(h.sent)])
		}
	case 6: // one arrives but for a chunk: the newest, so that it would count
		if len(h.sent) > 0 {
			chunks := h.sent[len(h.sent)-1]
			lost := int(arg) % len(chunks)
			h.deliver(o.session, chunks[:lost])
			h.deliver(o.session, chunks[lost+1:])
		}
	case 7: // a single chunk arrives
		if len(h.sent) > 0 {
			chunks := h.sent[int(arg)%len(h.sent)]
			h.deliver(o.session, chunks[int(arg)%len(chunks):][:1])
		}
	case 8: // something late arrives on a replaced stream
		if late := append(h.late, h.sent...); len(h.old) > 0 && len(late) > 0 {
			h.deliver(h.old[int(arg)%len(h.old)], late[int(arg)%len(late)])
		}
	case 9: // the stream breaks; the worker comes back, in the same term or a new one
		h.old = append(h.old, o.session)
		if arg%3 == 0 {
			o.session.Close()
		}
		if arg%2 == 0 {
			o.newTerm(fmt.Sprint("term-", o.incarnation))
			h.late, h.sent = h.sent, nil
		}
		o.attach(h.fleet)
		h.forget()
	}
	h.check()
}

// forget keeps some of what was sent, to be repeated later.
func (h *hostile) forget() {
	if len(h.sent) > 20 {
		h.sent = h.sent[len(h.sent)-20:]
	}
}

func (h *hostile) deliver(s *Session, chunks []*federationv1.Report) {
	for _, r := range chunks {
		s.Report(r)
	}
}

func (h *hostile) check() {
	h.t.Helper()
	view := held(h.fleet, "east")
	for k := range h.lasting {
		if view.Get(k) == nil {
			h.t.Fatalf("%s was deleted although its owner never removed it", k)
		}
	}
	for k, version := range h.shown {
		if view.Get(k) == nil {
			h.gone[k] = version
		}
	}
	for k, s := range view.All() {
		if version, was := h.gone[k]; was && s.Generation <= version {
			h.t.Fatalf("%s came back as it was before its removal", k)
		}
		if s.Generation < h.shown[k] {
			h.t.Fatalf("%s went back from version %d to %d", k, h.shown[k], s.Generation)
		}
		h.shown[k] = s.Generation
	}
}

// heal is a connection on which everything arrives.
func (h *hostile) heal() {
	h.t.Helper()
	h.owner.newTerm("healed")
	h.owner.attach(h.fleet)
	if ack := h.owner.complete(); ack.GetSendComplete() {
		h.owner.complete()
	}
	wantTruth(h.t, h.fleet, h.owner)
	if ack := h.owner.heartbeat(); ack.GetSendComplete() {
		h.t.Fatal("the digests differ although the view is right")
	}
}

func TestI5NoReportThatIsMissingPartialLateRepeatedOrOutOfOrderDeletes(t *testing.T) {
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 5))
		h := newHostile(t)
		for range 400 {
			h.step(byte(r.Uint32()), byte(r.Uint32()))
		}
		h.heal()
	}
}

func FuzzI5Schedules(f *testing.F) {
	f.Add([]byte{0, 21, 5, 0, 2, 1, 6, 0, 5, 0, 9, 2, 6, 1, 3, 2, 5, 0, 8, 0})
	f.Fuzz(func(t *testing.T, schedule []byte) {
		h := newHostile(t)
		for ; len(schedule) >= 2 && h.version < 2000; schedule = schedule[2:] {
			h.step(schedule[0], schedule[1])
		}
		h.heal()
	})
}

// The order of reports outlives the hub: a report of an older incarnation is nothing to a hub that just started.
func TestI5ARestartedHubBelievesNoOlderIncarnation(t *testing.T) {
	registry := &memoryRegistry{}
	o := connected(t, newFleet(t, registry), "east", envs(3)...)
	o.newTerm("second")
	o.connect(newFleet(t, registry))

	f := newFleet(t, registry)
	s, welcome, refused := f.Connect(Peer{ClusterID: "east"}, &federationv1.Hello{Protocol: 1, ClusterUid: o.uid, Term: "east-term-1",
		Incarnation: 1, Stream: 9})
	if refused != nil || welcome.GetHighestIncarnation() != 2 || welcome.GetHighestTerm() != "second" {
		t.Fatalf("welcome is %v, refused %v", welcome, refused)
	}
	for _, incarnation := range []uint64{0, 1, 2} {
		if err := s.Begin(&federationv1.Begin{Incarnation: incarnation}); err == nil {
			t.Errorf("incarnation %d of the old term may begin", incarnation)
		}
	}
	if ack := s.Report(&federationv1.Report{Sequence: 99, Last: true, Complete: true}); ack != nil {
		t.Errorf("a report before begin was answered %v", ack)
	}
	if err := s.Begin(&federationv1.Begin{Incarnation: 3}); err != nil {
		t.Errorf("a higher incarnation may not begin: %v", err)
	}
}

func TestI5AMassRemovalNeedsTwoCompleteReports(t *testing.T) {
	type step struct {
		leaveOut, bringBack []int // Envs
		repeat              bool  // deliver the last complete report again instead of a new one
		want                int   // Envs held afterwards
		asks                bool
	}
	cases := map[string]struct {
		of    int
		steps []step
	}{
		"thirty percent are believed":    {20, []step{{leaveOut: rangeOf(0, 6), want: 14}}},
		"more are not":                   {20, []step{{leaveOut: rangeOf(0, 7), want: 20, asks: true}}},
		"a second report confirms":       {20, []step{{leaveOut: rangeOf(0, 7), want: 20, asks: true}, {want: 13}}},
		"the same report again does not": {20, []step{{leaveOut: rangeOf(0, 7), want: 20, asks: true}, {repeat: true, want: 20}, {want: 13}}},
		"everything":                     {20, []step{{leaveOut: rangeOf(0, 20), want: 20, asks: true}, {want: 0}}},
		"a handful is believed":          {5, []step{{leaveOut: rangeOf(0, 5), want: 0}}},
		"what comes back is no suspect":  {20, []step{{leaveOut: rangeOf(0, 7), want: 20, asks: true}, {bringBack: rangeOf(0, 7), want: 20}}},
		"other Envs are suspected anew": {20, []step{{leaveOut: rangeOf(0, 7), want: 20, asks: true},
			{bringBack: rangeOf(0, 7), leaveOut: rangeOf(7, 14), want: 20, asks: true}, {want: 13}}},
		"the confirmed go, a few new too": {20, []step{{leaveOut: rangeOf(0, 7), want: 20, asks: true}, {leaveOut: rangeOf(7, 9), want: 11}}},
		"back and out again is suspect one": {20, []step{{leaveOut: rangeOf(0, 7), want: 20, asks: true}, {bringBack: rangeOf(0, 7), want: 20},
			{leaveOut: rangeOf(0, 7), want: 20, asks: true}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, &memoryRegistry{})
			o := connected(t, f, "east", envs(c.of)...)
			var last []*federationv1.Report
			for i, s := range c.steps {
				for _, n := range s.leaveOut {
					o.truth.Remove(env(n))
				}
				for _, n := range s.bringBack {
					o.truth.Put(pool(env(n), 1))
				}
				if !s.repeat {
					last = o.completeReport(4)
				}
				ack := o.deliver(last)
				if got := held(f, "east").Len(); got != s.want || ack.GetSendComplete() != s.asks {
					t.Fatalf("step %d: %d Envs held, asks %v; want %d, %v", i, got, ack.GetSendComplete(), s.want, s.asks)
				}
			}
		})
	}
}

func TestExplicitRemovalsAreBelievedAtOnce(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	o := connected(t, f, "east", envs(20)...)
	if ack := o.remove(o.truth.Keys()[:15]...); ack.GetSendComplete() {
		t.Fatal("the removal was questioned")
	}
	wantTruth(t, f, o)
	if f.View(env(0)) != nil || f.Env(env(0)) != nil {
		t.Error("an Env that no cluster has is still known")
	}
}

func TestAStreamStartsWithACompleteReport(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	o := connected(t, f, "east", envs(3)...)
	o.attach(f)
	before := held(f, "east")
	if ack := o.change(pool(env(1), 9)); !ack.GetSendComplete() {
		t.Fatal("a delta was taken before the stream's complete report")
	}
	if d := segment.Diff(before, held(f, "east")); !d.Empty() {
		t.Fatalf("the delta changed %v", d)
	}
	o.complete()
	wantTruth(t, f, o)
}

func TestDivergenceIsFoundByDigest(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	o := connected(t, f, "east", envs(3)...)
	if o.heartbeat().GetSendComplete() {
		t.Fatal("asked for a complete report without need")
	}
	// A change is lost on the way: the next report's digest shows it.
	o.report(o.truth.Apply(segment.Delta{Changed: []*segment.Segment{pool(env(0), 5)}}), false, 9)
	if !o.change(pool(env(1), 6)).GetSendComplete() {
		t.Fatal("a lost report was not noticed by the next")
	}
	o.complete()
	wantTruth(t, f, o)
	// A lost report, and nothing after it but heartbeats.
	o.report(o.truth.Apply(segment.Delta{Changed: []*segment.Segment{pool(env(0), 7)}}), false, 9)
	if !o.heartbeat().GetSendComplete() {
		t.Fatal("a lost report was not noticed by the heartbeat")
	}
	if o.heartbeat().GetSendComplete() {
		t.Fatal("asked again before an answer could arrive")
	}
	o.complete()
	wantTruth(t, f, o)
}

// A new leader's complete report of what the hub has already takes no further memory: views and parts have one segment. Only remaining
// durations, which views do not have, take another.
func TestAnEqualReportIsNotKeptBesideTheFirst(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	member := pool(env(1), 0).Members()[0]
	member.State, member.SaturatedFor = segment.Saturated, time.Minute
	o := connected(t, f, "east", pool(env(0), 1), segment.New(env(1)).Describe("u", 0, segment.Defaults{}).With(member))
	o.newTerm("another leader")
	o.connect(f)
	for n, shared := range map[int]bool{0: true, 1: false} {
		slot := f.index.get(env(n))
		if got := slot.parts[0].segment == slot.view.Load().Candidate(0).Segment; got != shared {
			t.Errorf("%s: the part and the view have the same segment: %t, want %t", env(n), got, shared)
		}
	}
}

func TestADigestThatNeverMatchesIsNotAskedAboutWithoutEnd(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	o := connected(t, f, "east", envs(3)...)
	asked := 0
	for range 100 {
		o.sequence++
		ack := o.session.Report(&federationv1.Report{Sequence: o.sequence, Last: true, Digest: 1})
		if ack.GetSendComplete() {
			asked++
			chunks := o.completeReport(100)
			chunks[0].Digest = 2
			if o.deliver(chunks).GetSendComplete() {
				t.Fatal("a complete report was answered with the wish for another")
			}
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

func TestTombstonesTravelInTheWelcomeAndAreBounded(t *testing.T) {
	registry := &memoryRegistry{}
	f := newFleet(t, registry)
	o := connected(t, f, "east", envs(600)...)
	o.remove(o.truth.Keys()[:590]...)
	o.change(pool(env(589), 1)) // back again: no tombstone
	f.saveRecords(t.Context())

	_, welcome := o.hail(newFleet(t, registry), o.nextHello())
	stones := welcome.GetTombstones()
	if len(stones) != maxTombstones-1 || stones[len(stones)-1].GetName() != env(588).Name {
		t.Errorf("%d tombstones, the last %v; want %d, the last %v", len(stones), stones[len(stones)-1], maxTombstones-1, env(588))
	}
}

func rangeOf(from, to int) []int {
	var out []int
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

// I5: a report that contradicts itself does not count at all, and a complete one is requested, with back-off.
func TestAReportThatNamesAnEnvTwiceCountsNotAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		east := connected(t, f, "east", envs(3)...)
		changed := func(n int) *federationv1.EnvSegment { return pool(env(n), 9).Proto() }
		for name, r := range map[string]*federationv1.Report{
			"changed twice":          {Segments: []*federationv1.EnvSegment{changed(0), changed(1), changed(0)}},
			"new, and changed twice": {Segments: []*federationv1.EnvSegment{changed(7), changed(7)}},
			"changed and removed":    {Segments: []*federationv1.EnvSegment{changed(1)}, Removed: []*federationv1.EnvKey{env(1).Proto()}},
			"removed twice":          {Removed: []*federationv1.EnvKey{env(8).Proto(), env(8).Proto()}},
		} {
			time.Sleep(askPause)
			r.Last = true
			for again := range 2 {
				east.sequence++
				r.Sequence = east.sequence
				if ack := east.session.Report(r); ack.GetSendComplete() != (again == 0) {
					t.Errorf("%s, time %d: answered %v", name, again, ack)
				}
			}
			wantTruth(t, f, east)
		}
	})
}
