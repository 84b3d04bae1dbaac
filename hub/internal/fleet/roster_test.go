// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/segment"
)

// lists are the lists of registered clusters in messages; "-" is one that says nothing.
func lists(messages []*federationv1.Foreign) (out []string) {
	for _, m := range messages {
		if r := m.GetRegistered(); r != nil {
			out = append(out, strings.Join(r.GetClusters(), ",")+strings.Repeat("-", max(0, 1-len(r.GetClusters()))))
		}
	}
	return out
}

// TestRegisteredClustersAreSent with a stream's first message, and when they change: not with every message.
func TestRegisteredClustersAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := &memoryRegistry{}
		f := newFleet(t, registry)
		east, west := newOwner(t, "east"), newOwner(t, "west")
		r := newReceiver(t, east)
		want := func(when string, want ...string) {
			t.Helper()
			messages := r.drain()
			if got := lists(messages); !slices.Equal(got, want) {
				t.Errorf("%s: the lists %v in %v, want %v", when, got, messages, want)
			}
		}
		east.connect(f)
		want("first", "east")
		west.attach(f)
		want("another registers", "east,west")
		west.complete()
		west.change(pool(env(1), 1))
		want("it reports")
		west.attach(f)
		want("it attaches again")
		east.connect(f)
		want("a new stream", "east,west")
		operate(t, f.Drain, "west")
		want("it is draining")
		operate(t, f.Forget, "west")
		want("it is forgotten", "east")
		for i := range 300 {
			newOwner(t, fmt.Sprintf("c%03d", i)).attach(f)
			time.Sleep(time.Millisecond)
		}
		if got := lists(r.drain()); len(got) > 2 || strings.Count(got[len(got)-1], ",") != 300 {
			t.Errorf("of 300 that register at once %d lists are sent: %v", len(got), got)
		}
		f = newFleet(t, registry)
		east.connect(f)
		if got := lists(r.drain()); len(got) != 1 || strings.Count(got[0], ",") != 300 {
			t.Errorf("a restarted hub lists %v", got)
		}
	})
}

// TestI14ALongListOfClustersIsNotSent, so that a message stays within its bound whatever is registered.
func TestI14ALongListOfClustersIsNotSent(t *testing.T) {
	var ids []string
	for i := range 1 << 12 {
		ids = append(ids, fmt.Sprintf("cluster-of-a-long-name-%d", i))
		r := newRoster(ids).message
		if n := len(r.GetClusters()); proto.Size(r) > rosterLimit || n != 0 && n != len(ids) {
			t.Fatalf("of %d clusters %d are listed, in %d bytes", len(ids), n, proto.Size(r))
		}
	}
	if n := len(newRoster(ids).message.GetClusters()); n != 0 {
		t.Errorf("of %d clusters %d are listed", len(ids), n)
	}
	if n := len(newRoster(ids[:1000]).message.GetClusters()); n != 1000 {
		t.Errorf("of 1000 clusters %d are listed", n)
	}
}

// TestAnEnvSaysWhichClustersDoNotServeIt, by what its clusters' objects name.
func TestAnEnvSaysWhichClustersDoNotServeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		east, north, west := newOwner(t, "east"), newOwner(t, "north"), newOwner(t, "west")
		key := env(0)
		named := func(list string) *segment.Segment {
			return segment.New(key).Describe("u", 0, segment.Defaults{Named: list}).With(pool(key, 1).Members()...)
		}
		want := func(when string, missing, without []string) {
			t.Helper()
			if got := f.Env(key); !slices.Equal(got.GetMissingClusters(), missing) || !slices.Equal(got.GetClustersWithoutEnv(), without) {
				t.Errorf("%s: missing %v, without %v; want %v, %v", when, got.GetMissingClusters(), got.GetClustersWithoutEnv(), missing, without)
			}
		}
		east.truth.Put(named("east,mars,north,west"))
		east.connect(f)
		want("alone", []string{"mars", "north", "west"}, nil)
		west.connect(f)
		north.attach(f)
		want("one has no such Env, one has not reported", []string{"mars"}, []string{"west"})
		north.complete()
		want("that one has it neither", []string{"mars"}, []string{"north", "west"})
		west.change(named("venus,west"))
		want("another object names another cluster", []string{"mars", "venus"}, []string{"north"})
		east.change(named(""))
		want("the first names none any more", []string{"venus"}, nil)
		west.session.Close()
		operate(t, f.Forget, "west")
		want("what a forgotten cluster named does not count", nil, nil)
		east.change(named("east,west"))
		want("a forgotten cluster is not registered", []string{"west"}, nil)
	})
}
