// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

// receiver is the sync path of a worker: it applies what NextForeign returns, and outlives streams and hubs.
type receiver struct {
	t     testing.TB
	own   *owner
	has   map[segment.Key]map[string]*segment.Segment
	stale map[string]bool
	named map[segment.Key]map[string]bool // by the chunks of a complete message so far
}

func newReceiver(t testing.TB, own *owner) *receiver {
	return &receiver{t: t, own: own, has: map[segment.Key]map[string]*segment.Segment{}, stale: map[string]bool{}}
}

// drain takes messages until none is left. It runs in a bubble.
func (r *receiver) drain() (messages []*federationv1.Foreign) {
	r.t.Helper()
	for {
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		m, err := r.own.session.NextForeign(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrReplaced) {
			return messages
		}
		must.Succeed(r.t, err)
		if n := proto.Size(m); n > 1<<20 {
			r.t.Fatalf("a message of %d bytes", n)
		}
		messages = append(messages, m)
		r.apply(m)
	}
}

func (r *receiver) apply(m *federationv1.Foreign) {
	r.t.Helper()
	if m.GetChunk() == 0 {
		r.named = map[segment.Key]map[string]bool{}
	}
	for _, e := range m.GetEnvs() {
		k, err := segment.KeyFromProto(e.GetKey())
		must.Succeed(r.t, err)
		for _, s := range e.GetSegments() {
			members, err := segment.MembersFromProto(s.GetMembers())
			must.Succeed(r.t, err)
			put(r.has, k, s.GetClusterId(), segment.New(k).With(members...))
			put(r.named, k, s.GetClusterId(), true)
			r.stale[s.GetClusterId()] = s.GetStale()
			if s.GetClusterId() == r.own.id {
				r.t.Fatalf("%s is told of its own segment of %s", r.own.id, k)
			}
		}
		for _, id := range e.GetRemoved() {
			delete(r.has[k], id)
		}
	}
	if !m.GetComplete() || !m.GetLast() {
		return
	}
	for k, clusters := range r.has {
		for id := range clusters {
			if slices.Contains(m.GetKnown(), id) && !r.named[k][id] {
				delete(clusters, id)
			}
		}
	}
}

func put[V any](m map[segment.Key]map[string]V, k segment.Key, id string, v V) {
	if m[k] == nil {
		m[k] = map[string]V{}
	}
	m[k][id] = v
}

// wantForeign compares what the receiver has of its own Envs with the other owners' truth.
func (r *receiver) wantForeign(others ...*owner) {
	r.t.Helper()
	for _, k := range r.own.truth.Keys() {
		want := map[string]*segment.Segment{}
		for _, o := range others {
			if s := o.truth.Get(k); s != nil && o != r.own {
				want[o.id] = s
			}
		}
		got := r.has[k]
		if len(got) != len(want) {
			r.t.Fatalf("%s has %d foreign segments of %s, want %d", r.own.id, len(got), k, len(want))
		}
		for id, s := range want {
			if got[id] == nil || !got[id].Equal(segment.New(k).With(s.Members()...)) {
				r.t.Fatalf("%s has of %s in %s %+v, want %+v", r.own.id, k, id, got[id], s)
			}
		}
	}
}

func TestForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		east := newOwner(t, "east", envs(3)...)
		r := newReceiver(t, east)
		east.attach(f)
		if got := r.drain(); len(got) != 0 {
			t.Fatalf("before its complete report the cluster is told %v", got)
		}
		east.complete()
		if got := r.drain(); len(got) != 1 || !got[0].GetComplete() || !got[0].GetLast() || len(got[0].GetKnown()) != 0 {
			t.Fatalf("alone in the federation the cluster is told %v", got)
		}

		// A cluster becomes known: everything of it, in one complete message.
		west := connected(t, f, "west", pool(env(1), 5), pool(env(2), 6), pool(env(7), 7))
		got := r.drain()
		if !got[0].GetComplete() || !slices.Equal(got[0].GetKnown(), []string{"west"}) || len(got[0].GetEnvs()) != 2 {
			t.Fatalf("of a new cluster it is told %v", got)
		}
		r.wantForeign(west)

		// Changes; the latest wins.
		for n := range int32(50) {
			west.change(pool(env(1), n))
		}
		if got := r.drain(); len(got) != 1 || got[0].GetComplete() || len(got[0].GetEnvs()) != 1 {
			t.Fatalf("of 50 changes it is told %v", got)
		}
		r.wantForeign(west)
		west.remove(env(2))
		if got := r.drain(); len(got) != 1 || !slices.Equal(got[0].GetEnvs()[0].GetRemoved(), []string{"west"}) {
			t.Fatalf("of a removal it is told %v", got)
		}
		r.wantForeign(west)

		// It ignores an Env that it does not have, until it has it.
		west.change(pool(env(7), 8))
		if got := r.drain(); len(got) != 0 {
			t.Fatalf("of an Env that it does not have it is told %v", got)
		}
		east.change(pool(env(7), 1))
		r.drain()
		r.wantForeign(west)
	})
}

func TestStaleSegmentsAreMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		run(t, f)
		east, west := connected(t, f, "east", envs(3)...), connected(t, f, "west", envs(3)...)
		r := newReceiver(t, east)
		r.drain()
		beatFor(east, 45*time.Second)
		if got := r.drain(); len(got) != 1 || len(got[0].GetEnvs()) != 3 || !r.stale["west"] {
			t.Fatalf("of a silent cluster it is told %v", got)
		}
		age := r.drainAge(f, west)
		if age < 40*time.Second {
			t.Errorf("the stale segments are %s old", age)
		}
		for range 6 {
			beatFor(west, heartbeatInterval)
		}
		synctest.Wait()
		if got := r.drain(); len(got) != 1 || r.stale["west"] {
			t.Fatalf("of the cluster's return it is told %v", got)
		}
		r.wantForeign(west)
	})
}

// drainAge requests everything again, for the age.
func (r *receiver) drainAge(f *Fleet, of *owner) time.Duration {
	r.own.connect(f)
	for _, m := range r.drain() {
		for _, e := range m.GetEnvs() {
			for _, s := range e.GetSegments() {
				if s.GetClusterId() == of.id && s.GetStale() {
					return s.GetAge().AsDuration()
				}
			}
		}
	}
	return 0
}

func TestForeignIsChunked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		east, west := newOwner(t, "east"), newOwner(t, "west")
		r := newReceiver(t, east)
		for i := range 120 {
			east.truth.Put(pool(env(i), 1))
			var members []segment.Member
			for m := range 32 {
				members = append(members, segment.Member{
					Name: fmt.Sprintf("pool-%02d", m), State: segment.Active, Shape: segment.Share(segment.Shape{Image: strings.Repeat("x", 1000)}),
				})
			}
			west.truth.Put(segment.New(env(i)).With(members...))
		}
		west.connect(f)
		east.connect(f)
		got := r.drain()
		if len(got) < 4 {
			t.Fatalf("%d messages", len(got))
		}
		for i, m := range got {
			if !m.GetComplete() || m.GetChunk() != uint32(i) || m.GetLast() != (i == len(got)-1) || !slices.Equal(m.GetKnown(), []string{"west"}) {
				t.Errorf("message %d: complete %v, chunk %d, last %v, known %v", i, m.GetComplete(), m.GetChunk(), m.GetLast(), m.GetKnown())
			}
		}
		r.wantForeign(west)
		// Changes of the same size.
		for i := range 120 {
			s := *west.truth.Get(env(i))
			s.Generation++
			s.With(append(s.Members(), segment.Member{Name: "pool-99", State: segment.Active})...)
			west.change(&s)
		}
		r.drain()
		r.wantForeign(west)
	})
}

// Whatever happens in between (lost reports, broken streams, restarts of workers and of the hub, Envs that come and go),
// once everything is connected every view equals the owners' segments, at the hub and at every worker.
func TestI4AfterHealingEveryViewEqualsTheOwnersSegments(t *testing.T) {
	for seed := range uint64(25) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 4))
			registry := &memoryRegistry{}
			f := newFleet(t, registry)
			var owners []*owner
			var receivers []*receiver
			for i := range 4 {
				o := connected(t, f, fmt.Sprint("cluster-", i), envs(6)...)
				owners, receivers = append(owners, o), append(receivers, newReceiver(t, o))
			}
			for range 300 {
				i := rnd.IntN(len(owners))
				chaos(rnd, &f, registry, owners[i], receivers[i])
			}
			for _, o := range owners {
				o.heal(f)
			}
			for _, r := range receivers {
				r.drain()
			}
			for i, r := range receivers {
				wantTruth(t, f, owners[i])
				r.wantForeign(owners...)
			}
		})
	}
}

func chaos(rnd *rand.Rand, f **Fleet, registry Registry, o *owner, r *receiver) {
	k := env(rnd.IntN(10))
	var report []*federationv1.Report
	switch rnd.IntN(12) {
	case 0, 1, 2, 3:
		report = o.report(o.truth.Apply(segment.Delta{Changed: []*segment.Segment{pool(k, rnd.Int32N(9))}}), false, 1)
	case 4, 5:
		report = o.report(o.truth.Apply(segment.Delta{Removed: []segment.Key{k}}), false, 1)
	case 6:
		report = o.completeReport(2)
	case 7:
		o.reconnect(*f)
	case 8:
		o.newTerm(fmt.Sprint(o.id, "-", rnd.Uint64()))
		o.reconnect(*f)
	case 9:
		o.session.Close()
	case 10:
		r.drain()
	case 11: // the hub dies; only some come back before the next thing happens
		if rnd.IntN(6) == 0 {
			*f = newFleet(o.t, registry)
		}
	}
	for _, chunk := range report {
		if rnd.IntN(8) > 0 {
			o.session.Report(chunk)
		}
	}
}

// heal is a worker without faults: it connects if it is not connected, and continues with heartbeats and the complete reports
// that the hub requests.
func (o *owner) heal(f *Fleet) {
	o.t.Helper()
	if o.session.cluster.fleet != f || !o.session.current() {
		o.reconnect(f)
	}
	for range 10 {
		time.Sleep(askPause)
		if !o.heartbeat().GetSendComplete() {
			return
		}
		o.complete()
	}
	o.t.Fatalf("%s is asked for complete reports without end", o.id)
}

// reconnect is what a worker does: it sends another complete report on request.
func (o *owner) reconnect(f *Fleet) {
	o.attach(f)
	if o.complete().GetSendComplete() {
		o.complete()
	}
}

// A receiver that reads nothing while Envs come and go costs no more than the Envs it has.
func TestI10AnOutboxIsBoundedByItsEnvs(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	east, west := connected(t, f, "east", envs(10)...), connected(t, f, "west", envs(10)...)
	for n := range 3000 {
		for _, o := range []*owner{west, east} {
			k := segment.Key{Namespace: "churn", Name: fmt.Sprint(n)}
			o.change(pool(k, 1), pool(env(n%10), int32(n)))
			if n > 0 {
				o.remove(segment.Key{Namespace: "churn", Name: fmt.Sprint(n - 1)})
			}
		}
	}
	for _, o := range []*owner{east, west} {
		if got, limit := o.session.outbox.size(), 1+o.truth.Len(); got > limit {
			t.Errorf("the outbox of %s has %d parts, with %d Envs", o.id, got, o.truth.Len())
		}
	}
	envs := 0
	for i := range f.index.shards {
		envs += len(*f.index.shards[i].slots.Load())
	}
	if envs != 11 {
		t.Errorf("the index holds %d Envs, want 11", envs)
	}
	if got := len(f.cluster("west").recordCopy().Tombstones); got > maxTombstones {
		t.Errorf("%d tombstones", got)
	}
}

func TestNextForeignEndsWithTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFleet(t, &memoryRegistry{}), newOwner(t, "east")
		o.connect(f)
		newReceiver(t, o).drain()
		ended := make(chan error)
		go func() {
			_, err := o.session.NextForeign(context.Background())
			ended <- err
		}()
		synctest.Wait()
		o.connect(f)
		if err := <-ended; !errors.Is(err, ErrReplaced) {
			t.Errorf("NextForeign of a replaced stream ended with %v", err)
		}
	})
}

func TestStaleClustersAreNotRoutedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		run(t, f)
		east, west := connected(t, f, "east", pool(env(0), 100)), connected(t, f, "west", pool(env(0), 1))
		want := func(id string) {
			t.Helper()
			synctest.Wait()
			if got := picked(f, &router.Request{}, 1); got != id {
				t.Errorf("picked %s, want %s", got, id)
			}
		}
		want("east")
		east.session.NoReceipt()
		want("west")
		east.session.Receipt()
		want("east")
		beatFor(west, 20*time.Second)
		want("west")
	})
}
