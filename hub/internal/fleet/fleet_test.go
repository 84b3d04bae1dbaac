// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryRegistry outlives a fleet, as a disk does.
type memoryRegistry struct {
	mu      sync.Mutex
	records map[string]Record
	fail    error
	block   map[string]chan struct{} // saves of these clusters wait
}

func (r *memoryRegistry) Load(context.Context) ([]Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.records)), nil
}

func (r *memoryRegistry) Save(ctx context.Context, record Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if gate := r.block[record.ClusterID]; gate != nil {
		r.mu.Unlock()
		select {
		case <-gate:
		case <-ctx.Done():
		}
		r.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if r.fail != nil {
		return r.fail
	}
	if r.records == nil {
		r.records = map[string]Record{}
	}
	r.records[record.ClusterID] = record
	return nil
}

// pick chooses a member of an Env from the present view.
func (f *Fleet) pick(key segment.Key, req *router.Request, rnd uint64) (*router.View, router.Decision) {
	view := f.View(key)
	return view, router.Pick(req, view, rnd)
}

func newFleet(t testing.TB, registry Registry) *Fleet {
	t.Helper()
	f, err := New(context.Background(), Options{Clock: clock.RealClock{}, Registry: registry, HubID: "hub-0", Version: "test"})
	must.Succeed(t, err)
	return f
}

// owner is a cluster's worker on the link: it has the truth about its segments.
type owner struct {
	t           testing.TB
	id, uid     string
	key         string // of its certificate
	term        string
	incarnation uint64
	stream      uint64
	sequence    uint64
	beat        uint64
	hosting     *federationv1.Hosting
	truth       segment.Snapshot
	session     *Session
}

func newOwner(t testing.TB, id string, segments ...*segment.Segment) *owner {
	o := &owner{t: t, id: id, uid: "uid-" + id, term: id + "-term-1", incarnation: 1}
	o.truth.Apply(segment.Delta{Changed: segments})
	return o
}

// connected is an owner whose complete report has arrived.
func connected(t testing.TB, f *Fleet, id string, segments ...*segment.Segment) *owner {
	t.Helper()
	o := newOwner(t, id, segments...)
	o.connect(f)
	return o
}

func (o *owner) hello() *federationv1.Hello {
	return &federationv1.Hello{
		Protocol: 1, Version: "w", ClusterUid: o.uid, Term: o.term, Incarnation: o.incarnation, Stream: o.stream, ResourceVersion: 100,
		Hosting: o.hosting,
	}
}

// nextHello is the hello of the owner's next stream.
func (o *owner) nextHello() *federationv1.Hello {
	o.stream++
	return o.hello()
}

// hail says hello, and is welcomed.
func (o *owner) hail(f *Fleet, hello *federationv1.Hello) (*Session, *federationv1.Welcome) {
	o.t.Helper()
	session, welcome, refused := f.Connect(Peer{ClusterID: o.id, Key: o.key}, hello)
	if refused != nil {
		o.t.Fatalf("%s is refused: %v", o.id, refused)
	}
	return session, welcome
}

// newTerm is a restart of the worker.
func (o *owner) newTerm(term string) {
	o.term, o.stream, o.sequence = term, 0, 0
	o.incarnation++
}

// attach connects and begins, without any report.
func (o *owner) attach(f *Fleet) {
	o.t.Helper()
	session, welcome := o.hail(f, o.nextHello())
	if welcome.GetHighestIncarnation() > o.incarnation || welcome.GetHighestIncarnation() == o.incarnation &&
		welcome.GetHighestTerm() != o.term {
		o.incarnation, o.sequence = welcome.GetHighestIncarnation()+1, 0
	}
	must.Succeed(o.t, session.Begin(&federationv1.Begin{Incarnation: o.incarnation}))
	o.session = session
}

// connect attaches and sends the complete report.
func (o *owner) connect(f *Fleet) {
	o.t.Helper()
	o.attach(f)
	if ack := o.complete(); ack == nil || ack.GetSendComplete() {
		o.t.Fatalf("%s: the complete report was answered %v", o.id, ack)
	}
}

func (o *owner) complete() *federationv1.ReportAck { return o.deliver(o.completeReport(1 << 20)) }

func (o *owner) deliver(chunks []*federationv1.Report) (ack *federationv1.ReportAck) {
	for _, r := range chunks {
		ack = o.session.Report(r)
	}
	return ack
}

// completeReport is a report of everything, in chunks of so many segments.
func (o *owner) completeReport(chunk int) []*federationv1.Report {
	var d segment.Delta
	for _, k := range o.truth.Keys() {
		d.Changed = append(d.Changed, o.truth.Get(k))
	}
	return o.report(d, true, chunk)
}

func (o *owner) report(d segment.Delta, complete bool, chunk int) []*federationv1.Report {
	o.sequence++
	var out []*federationv1.Report
	next := func() *federationv1.Report {
		r := &federationv1.Report{Sequence: o.sequence, Chunk: uint32(len(out)), Complete: complete}
		out = append(out, r)
		return r
	}
	r := next()
	for _, s := range d.Changed {
		if len(r.Segments) == chunk {
			r = next()
		}
		r.Segments = append(r.Segments, s.Proto())
	}
	for _, k := range d.Removed {
		r.Removed = append(r.Removed, k.Proto())
	}
	r.Last, r.Digest = true, o.truth.Digest()
	return out
}

// change sets the segments and reports them.
func (o *owner) change(segments ...*segment.Segment) *federationv1.ReportAck {
	return o.deliver(o.report(o.truth.Apply(segment.Delta{Changed: segments}), false, 1<<20))
}

func (o *owner) remove(keys ...segment.Key) *federationv1.ReportAck {
	return o.deliver(o.report(o.truth.Apply(segment.Delta{Removed: keys}), false, 1<<20))
}

func (o *owner) heartbeat() *federationv1.HeartbeatAck {
	o.beat++
	return o.session.Heartbeat(&federationv1.Heartbeat{Number: o.beat, Sequence: o.sequence, Digest: o.truth.Digest(),
		ResourceVersion: 100 + o.beat})
}

func env(n int) segment.Key {
	return segment.Key{Namespace: "default", Name: fmt.Sprintf("env-%03d", n)}
}

// pool returns a segment of one member with so many ready Pods.
func pool(k segment.Key, ready int32) *segment.Segment {
	return segment.New(k).Describe("u", 0, segment.Defaults{}).With(segment.Member{
		Name: "pool", State: segment.Active, Idle: ready, ReadyIdle: ready, QueueCapacity: 8, Shape: segment.Share(segment.Shape{Image: "img"}),
	})
}

func envs(n int) []*segment.Segment {
	var out []*segment.Segment
	for i := range n {
		out = append(out, pool(env(i), 1))
	}
	return out
}

// held is what the fleet shows of one cluster.
func held(f *Fleet, id string) *segment.Snapshot {
	var out segment.Snapshot
	for _, k := range f.Keys("") {
		slot := f.index.get(k)
		for _, p := range slot.snapshot() {
			if p.owner.ID == id {
				out.Put(p.segment)
			}
		}
	}
	return &out
}

// wantTruth compares what the fleet shows with what the owner has.
func wantTruth(t testing.TB, f *Fleet, o *owner) {
	t.Helper()
	if d := segment.Diff(held(f, o.id), &o.truth); !d.Empty() {
		t.Fatalf("the view of %s differs from its truth by %d changed, %d removed: %v", o.id, len(d.Changed), len(d.Removed), d)
	}
}
