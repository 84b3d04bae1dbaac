// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/segment"
)

func envOf(name string, ids ...string) *federationv1.ForeignEnv {
	out := &federationv1.ForeignEnv{Key: &federationv1.EnvKey{Namespace: "default", Name: name}}
	for _, id := range ids {
		out.Segments = append(out.Segments, &federationv1.ForeignSegment{ClusterId: id})
	}
	return out
}

func has(f *foreign, name string) []string {
	var ids []string
	for id, s := range f.envs[segment.Key{Namespace: "default", Name: name}] {
		if s != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func complete(chunk uint32, last bool, known []string, envs ...*federationv1.ForeignEnv) *federationv1.Foreign {
	return &federationv1.Foreign{Complete: true, Chunk: chunk, Last: last, Known: known, Envs: envs}
}

// I5: nothing is dropped except by a removal, or by a complete message that knows the cluster and has arrived in full.
func TestI5ForeignSegmentsGoOnlyWhenTheyAreKnownToBeGone(t *testing.T) {
	type step struct {
		name    string
		message *federationv1.Foreign // nil: the connection breaks
		want    []string
	}
	both := []string{"north", "west"}
	f := newForeign()
	for _, s := range []step{
		{"a complete message", complete(0, true, both, envOf("py", both...)), both},
		{"the connection breaks", nil, both},
		{"a hub that knows no cluster", complete(0, true, nil), both},
		{"half a complete message", complete(0, false, both), both},
		{"the connection breaks in between", nil, both},
		{"the other half alone", complete(1, true, both), both},
		{"a delta about another Env", &federationv1.Foreign{Last: true, Envs: []*federationv1.ForeignEnv{envOf("go", "west")}}, both},
		{"a complete message about another cluster", complete(0, true, []string{"south"}, envOf("py", "south")),
			[]string{"north", "south", "west"}},
		{"one of two known clusters has it no more", complete(0, true, both, envOf("py", "west")), []string{"south", "west"}},
		{"a removal", &federationv1.Foreign{Last: true, Envs: []*federationv1.ForeignEnv{
			{Key: &federationv1.EnvKey{Namespace: "default", Name: "py"}, Removed: []string{"west"}}}}, []string{"south"}},
		{"in two chunks", complete(0, false, both, envOf("py", "west")), []string{"south"}},
		{"the second", complete(1, true, both, envOf("py", "north")), []string{"north", "south", "west"}},
	} {
		if s.message == nil {
			f.disconnected()
		} else {
			f.receive(s.message, now)
		}
		if got := has(f, "py"); !slices.Equal(got, s.want) {
			t.Fatalf("%s: %v are there, want %v", s.name, got, s.want)
		}
	}
}

func TestReceiveNamesTheEnvsThatChanged(t *testing.T) {
	f := newForeign()
	f.receive(complete(0, true, []string{"west"}, envOf("py", "west"), envOf("go", "west")), now)
	changed := f.receive(complete(0, true, []string{"west"}, envOf("go", "west")), now)
	got := slices.SortedFunc(maps.Keys(changed), segment.Key.Compare)
	want := []segment.Key{{Namespace: "default", Name: "go"}, {Namespace: "default", Name: "py"}}
	if !slices.Equal(got, want) {
		t.Errorf("changed are %v, want %v", got, want)
	}
	if len(f.envs) != 1 {
		t.Errorf("%d Envs are kept, want 1", len(f.envs))
	}
}

// TestRegisteredClusters are known from a list until the connection breaks. An invalid name is dropped alone, and a list that is
// too long whole.
func TestRegisteredClusters(t *testing.T) {
	list := func(ids ...string) *federationv1.Foreign {
		return &federationv1.Foreign{Last: true, Registered: &federationv1.Registered{Clusters: ids}}
	}
	f := newForeign()
	for _, s := range []struct {
		name     string
		message  *federationv1.Foreign // nil: the connection breaks
		want     []string              // nil: not known
		unusable int
	}{
		{"none yet", complete(0, true, []string{"west"}), nil, 0},
		{"a list", list("east", "west"), []string{"east", "west"}, 0},
		{"no change", complete(0, true, []string{"west"}), []string{"east", "west"}, 0},
		{"one less, and no name", list("east", "No!"), []string{"east"}, 1},
		{"too many for the hub", list(), nil, 1},
		{"again", list("east"), []string{"east"}, 1},
		{"too many for the worker", list(slices.Repeat([]string{"x"}, maxRegistered+1)...), nil, 2},
		{"again", list("east"), []string{"east"}, 2},
		{"the connection breaks", nil, nil, 2},
	} {
		if s.message == nil {
			f.disconnected()
		} else {
			f.receive(s.message, now)
		}
		var got []string
		if f.registered != nil {
			got = slices.Sorted(maps.Keys(f.registered))
		}
		if !slices.Equal(got, s.want) || (got == nil) != (s.want == nil) || f.unusable != s.unusable {
			t.Errorf("%s: registered are %v, %d parts are dropped; want %v, %d", s.name, got, f.unusable, s.want, s.unusable)
		}
		if n := f.takeNews(); n.all != (s.message.GetRegistered() != nil) {
			t.Errorf("%s: all Envs are decided about again: %t", s.name, n.all)
		}
	}
}

// TestNewsConcernEnvsThatNameTheCluster: of a cluster that is heard of without segments, no Env has changed.
func TestNewsConcernEnvsThatNameTheCluster(t *testing.T) {
	f := newForeign()
	f.receive(complete(0, true, []string{"west"}), now)
	n := f.takeNews()
	if n.all || !n.concern(having(env(nil), "west")) || n.concern(having(env(nil), "north")) || n.concern(env(nil)) {
		t.Errorf("the news are %+v", n)
	}
	f.receive(complete(0, true, []string{"west"}), now)
	if n = f.takeNews(); len(n.ids) != 0 {
		t.Errorf("heard of once more, %v is news", n.ids)
	}
}

func TestARemovalOutlivesACopyInTheEnv(t *testing.T) {
	f := newForeign() // a restarted worker: it knows no cluster
	f.receive(&federationv1.Foreign{Last: true, Envs: []*federationv1.ForeignEnv{
		{Key: &federationv1.EnvKey{Namespace: "default", Name: "py"}, Removed: []string{"west"}}}}, now)
	v := f.envs[segment.Key{Namespace: "default", Name: "py"}]
	d := decide(facts{local: "east", env: env(nil, shown("west", 1)), view: v, known: f.known, heard: f.heard, hub: hubInSync, now: now})
	if len(d.entries) != 0 || !d.write() {
		t.Errorf("the removed segment stays: %s", text(d))
	}
}

// An invalid part is dropped and counted; earlier state stays (I5), and the rest of the message is taken.
func TestWhatCannotBeUsedIsDroppedAlone(t *testing.T) {
	member := func(name string) []*federationv1.MemberSegment { return []*federationv1.MemberSegment{{Name: name}} }
	for name, bad := range map[string]*federationv1.ForeignEnv{
		"a member of 2 MiB": {Key: envOf("py").Key,
			Segments: []*federationv1.ForeignSegment{{ClusterId: "west", Members: member(strings.Repeat("x", 2<<20))}}},
		"no DNS name": {Key: envOf("py").Key, Segments: []*federationv1.ForeignSegment{{ClusterId: "west", Members: member("../x")}}},
		"no ClusterID": {Key: envOf("py").Key, Segments: []*federationv1.ForeignSegment{{ClusterId: "West!"},
			{ClusterId: "west", Members: member("")}}, Removed: []string{"No"}},
		"no Env": envOf("", "west"),
	} {
		for _, whole := range []bool{false, true} {
			f := newForeign()
			known := []string{"north", "west"}
			f.receive(complete(0, true, known, envOf("py", known...), envOf("go", known...)), time.Time{})
			m := &federationv1.Foreign{Last: true, Complete: whole, Envs: []*federationv1.ForeignEnv{bad, envOf("go", "north", "south")}}
			f.receive(m, time.Time{})
			if got := has(f, "py"); !slices.Equal(got, known) || f.unusable == 0 || f.lastUnusable == nil {
				t.Errorf("%s, complete %v: %v is shown of py, %d dropped", name, whole, got, f.unusable)
			}
			if got := has(f, "go"); !slices.Equal(got, []string{"north", "south", "west"}) {
				t.Errorf("%s, complete %v: %v is shown of go", name, whole, got)
			}
			if len(f.envs) != 2 {
				t.Errorf("%s: %d Envs are kept", name, len(f.envs))
			}
		}
	}
	endless := newForeign()
	for n := range uint32(3 * maxChunks) {
		if endless.receive(complete(n, false, nil), time.Time{}); len(endless.assembly) > maxChunks {
			t.Fatalf("%d chunks are kept", len(endless.assembly))
		}
	}
}
