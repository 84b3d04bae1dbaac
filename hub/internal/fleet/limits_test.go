// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/segment"
)

func limited(t *testing.T, l Limits) *Fleet {
	t.Helper()
	f, err := New(t.Context(), Options{Clock: clock.RealClock{}, Registry: &memoryRegistry{}, Limits: l})
	must.Succeed(t, err)
	return f
}

// crowded makes a segment of so many members.
func crowded(k segment.Key, members int) *segment.Segment {
	s := segment.New(k)
	var all []segment.Member
	for i := range members {
		all = append(all, segment.Member{Name: fmt.Sprint("m", i), ReadyIdle: 1})
	}
	return s.With(all...)
}

// I14: a cluster above a limit is degraded and shows why; what it had stays, no other cluster is affected, and once it is within
// its limits it is as before.
func TestI14AClusterOverItsLimitIsDegradedAlone(t *testing.T) {
	for name, c := range map[string]struct {
		limits Limits
		over   []*segment.Segment
		keys   int
		says   string
		envs   int // of its own three Envs and what is over, those that count
	}{
		"Envs":    {Limits{Envs: 5}, func() (all []*segment.Segment) { return envs(20)[10:] }(), 0, "limit of 5 Envs", 5},
		"members": {Limits{Members: 10}, []*segment.Segment{crowded(env(11), 6), crowded(env(12), 6)}, 0, "limit of 10 members", 4},
		"bytes":   {Limits{Bytes: 3000}, []*segment.Segment{crowded(env(11), 12)}, 0, "limit of 3000 bytes of segments", 3},
		"keys":    {Limits{Keys: 2}, nil, 3, "limit of 2 claim keys", 3},
	} {
		t.Run(name, func(t *testing.T) {
			f := limited(t, c.limits)
			east, west := connected(t, f, "east", envs(3)...), connected(t, f, "west", envs(3)...)
			r := east.report(segment.Delta{Changed: append(envs(3), c.over...)}, true, 1<<20)[0]
			for i := range c.keys {
				r.Keys = append(r.Keys, &federationv1.KeyHolder{KeyHash: fmt.Sprint(i)})
			}
			if ack := east.session.Report(r); ack == nil {
				t.Fatal("not acknowledged")
			}
			if keys, whole := east.session.Keys(); whole == (c.keys > 0) {
				t.Errorf("its key index counts: %v, with %d keys", whole, len(keys))
			}
			shown := f.Cluster("east")
			if shown.GetState() != sandboxv1.ClusterState_DEGRADED || !strings.Contains(shown.GetMessage(), c.says) ||
				int(shown.GetEnvs()) != c.envs {
				t.Errorf("shown as %v, want it degraded with %q, and %d Envs", shown, c.says, c.envs)
			}
			for i := range 3 {
				if f.index.get(env(i)).view.Load().Len() != 2 {
					t.Errorf("%s has lost a member", env(i))
				}
			}
			wantTruth(t, f, west)
			if ack := west.change(pool(env(7), 1)); ack.GetSendComplete() || f.Cluster("west").GetState() != sandboxv1.ClusterState_FRESH {
				t.Errorf("the other cluster: %v, %v", ack, f.Cluster("west"))
			}
			east.complete()
			wantTruth(t, f, east)
			if shown := f.Cluster("east"); shown.GetState() != sandboxv1.ClusterState_FRESH || shown.GetMessage() != "" {
				t.Errorf("with no more than it may have it is shown as %v", shown)
			}
		})
	}
}

// I14: a segment that no owner can have is left out, with its contents; the rest of the report counts.
func TestI14AnInvalidSegmentCostsItsOwnEnvAlone(t *testing.T) {
	bad := func(k segment.Key, m *federationv1.MemberSegment) *federationv1.EnvSegment {
		return &federationv1.EnvSegment{Key: k.Proto(), Members: []*federationv1.MemberSegment{m}}
	}
	for says, s := range map[string]*federationv1.EnvSegment{
		`default/env-001: invalid segment: it has`:      bad(env(1), &federationv1.MemberSegment{Name: strings.Repeat("x", 4<<20)}),
		`default/env-001: invalid segment: member "UP"`: bad(env(1), &federationv1.MemberSegment{Name: "UP"}),
		`default/env-001: invalid segment: image "iiii`: bad(env(1), &federationv1.MemberSegment{Name: "m",
			Image: strings.Repeat("i", 2000)}),
		`invalid segment: namespace ""`: {},
		`invalid segment: name "` + strings.Repeat("n", 64): {Key: &federationv1.EnvKey{Namespace: "default",
			Name: strings.Repeat("n", 1<<20)}},
		`default/env-009: invalid segment: default_instance_t`: {Key: env(9).Proto(), DefaultInstanceType: strings.Repeat("n", 1000)},
	} {
		f := newFleet(t, &memoryRegistry{})
		o := connected(t, f, "east", envs(3)...)
		o.sequence++
		o.session.Report(&federationv1.Report{Sequence: o.sequence, Last: true,
			Segments: []*federationv1.EnvSegment{s, pool(env(2), 77).Proto()}})
		shown := f.Cluster("east")
		if shown.GetState() != sandboxv1.ClusterState_DEGRADED || !strings.Contains(shown.GetMessage(), says) || len(shown.GetMessage()) > 500 {
			t.Errorf("shown as %.500v, want it degraded with %q", shown, says)
		}
		if got := f.index.get(env(2)).view.Load().Candidate(0).Member().ReadyIdle; got != 77 {
			t.Errorf("%s: the rest of the report does not count: %d", says, got)
		}
		if key := env(1).Proto(); s.GetKey().GetName() == key.GetName() && f.index.get(env(1)).view.Load().Len() != 0 {
			t.Errorf("%s: what was said before still counts", says)
		}
		o.complete()
		wantTruth(t, f, o)
	}
}

// I14, I10: a report that arrives costs no more than its cluster's budget, whether or not it ever ends.
func TestI14AnUnfinishedReportIsKeptWithinItsBudget(t *testing.T) {
	for name, chunk := range map[string]*federationv1.Report{
		"texts":          {Segments: []*federationv1.EnvSegment{{Key: env(1).Proto(), Template: strings.Repeat("x", 64<<10)}}},
		"empty segments": {Segments: make([]*federationv1.EnvSegment, 1000)},
		"removals":       {Removed: make([]*federationv1.EnvKey, 1000)},
		"keys":           {Keys: make([]*federationv1.KeyHolder, 1000)},
	} {
		t.Run(name, func(t *testing.T) {
			f := limited(t, Limits{Bytes: 1 << 20})
			o := connected(t, f, "east", envs(3)...)
			o.sequence++
			for n := range uint32(maxChunks) {
				ack := o.session.Report(&federationv1.Report{Sequence: o.sequence, Chunk: n, Complete: true, Last: n == maxChunks-1,
					Segments: chunk.GetSegments(), Removed: chunk.GetRemoved(), Keys: chunk.GetKeys()})
				a := &o.session.assembly
				if kept := sizeOf(&federationv1.Report{Segments: a.segments, Removed: a.removed, Keys: a.keys}); kept > 1<<20 {
					t.Fatalf("after %d chunks %d bytes are kept", n+1, kept)
				}
				if (ack != nil) != (n == maxChunks-1) {
					t.Fatalf("chunk %d is answered %v", n, ack)
				}
			}
			if _, whole := o.session.Keys(); whole {
				t.Error("the key index of a report that was refused counts")
			}
			if shown := f.Cluster("east"); shown.GetState() != sandboxv1.ClusterState_DEGRADED ||
				!strings.Contains(shown.GetMessage(), "limit of 1048576 bytes in a report") {
				t.Errorf("shown as %v", shown)
			}
			wantTruth(t, f, o)
		})
	}
}

// The key index of a report that does not count is not used: it may be from another time, or made up.
func TestKeysOfAReportThatDoesNotCountAreNotUsed(t *testing.T) {
	f, o := newFleet(t, &memoryRegistry{}), newOwner(t, "east", envs(3)...)
	o.attach(f)
	keys := []*federationv1.KeyHolder{{KeyHash: "0123"}}
	report := func(sequence uint64, complete bool, segments ...*federationv1.EnvSegment) bool {
		o.session.Report(&federationv1.Report{Sequence: sequence, Last: true, Complete: complete, Segments: segments, Keys: keys})
		got, whole := o.session.Keys()
		return whole && len(got) == 1
	}
	one := pool(env(1), 1).Proto()
	for _, c := range []struct {
		name string
		uses bool
		got  bool
	}{
		{"a delta before the first complete report", false, report(1, false)},
		{"one that names an Env twice", false, report(2, true, one, one)},
		{"a complete report", true, report(3, true, one)},
		{"the same again", false, report(3, true, one)},
		{"an older one", false, report(2, true, one)},
		{"a delta", false, report(4, false, one)},
		{"the next", true, report(5, true, one)},
	} {
		if c.got != c.uses {
			t.Errorf("%s: its keys are used: %v", c.name, c.got)
		}
	}
}

// A Hello is kept, shown and stored, so its texts are bounded.
func TestAHelloOutOfBoundsIsRefused(t *testing.T) {
	f, o := newFleet(t, &memoryRegistry{}), newOwner(t, "east")
	for field, change := range map[string]func(*federationv1.Hello, string){
		"version":     func(h *federationv1.Hello, s string) { h.Version = s },
		"cluster_uid": func(h *federationv1.Hello, s string) { h.ClusterUid = s },
		"term":        func(h *federationv1.Hello, s string) { h.Term = s },
		"hosting":     func(h *federationv1.Hello, s string) { h.Hosting = &federationv1.Hosting{Host: s} },
	} {
		hello := o.hello()
		change(hello, strings.Repeat("x", 1<<20))
		if _, _, refused := f.Connect(Peer{ClusterID: "east"}, hello); refused.GetReason() != "Invalid" ||
			!strings.HasPrefix(refused.GetMessage(), field) {
			t.Errorf("%s: %v", field, refused)
		}
	}
	o.attach(f)
}

// I14: a cluster whose worker keeps beginning new terms costs the registry a write now and then, and is admitted again later.
func TestI14ANewTermIsNotWrittenDownWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o, other := newFleet(t, &memoryRegistry{}), newOwner(t, "east"), newOwner(t, "west")
		begin := func() error {
			o.newTerm(fmt.Sprint("term-", o.incarnation))
			session, _ := o.hail(f, o.nextHello())
			return session.Begin(&federationv1.Begin{Incarnation: o.incarnation})
		}
		written := 0
		for range 5 * beginBurst {
			switch err := begin(); {
			case err == nil:
				written++
			case !errors.Is(err, ErrTooOften):
				t.Fatal(err)
			}
		}
		if written != beginBurst {
			t.Errorf("%d of %d were written down, want %d", written, 5*beginBurst, beginBurst)
		}
		other.connect(f)
		time.Sleep(beginEvery)
		if err := begin(); err != nil {
			t.Errorf("later: %v", err)
		}
		if err := begin(); !errors.Is(err, ErrTooOften) {
			t.Errorf("and once more: %v", err)
		}
		time.Sleep(time.Hour)
		for range beginBurst {
			must.Succeed(t, begin())
		}
	})
}
