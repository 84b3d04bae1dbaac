// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func (r Record) text() string {
	out := fmt.Sprintf("%s=%s/%d", r.ClusterID, r.UID, r.Incarnation)
	if r.Draining {
		out += " draining"
	}
	for _, f := range r.Forgotten {
		out += " -" + f.UID
		if f.Lifted {
			out += "(lifted)"
		}
	}
	return out
}

func gone(uids ...string) (out []Forgotten) {
	for _, uid := range uids {
		lifted := strings.HasSuffix(uid, "?")
		out = append(out, Forgotten{UID: strings.TrimSuffix(uid, "?"), Lifted: lifted})
	}
	return out
}

func TestMergeRecord(t *testing.T) {
	for _, tc := range []struct {
		name         string
		newer, older Record
		want         string
	}{
		{"the same", Record{UID: "a", Incarnation: 2}, Record{UID: "a", Incarnation: 1}, "east=a/2"},
		{"an incarnation never goes down", Record{UID: "a", Incarnation: 2}, Record{UID: "a", Incarnation: 5}, "east=a/5"},
		{"draining is the newer's", Record{UID: "a"}, Record{UID: "a", Draining: true}, "east=a/0"},
		{"forgotten since", Record{Forgotten: gone("a")}, Record{UID: "a"}, "east=/0 -a"},
		{"forgotten and let in again since, and not here yet", Record{Forgotten: gone("a?")}, Record{UID: "a"}, "east=/0 -a(lifted)"},
		{"back since", Record{UID: "a"}, Record{Forgotten: gone("a")}, "east=a/0"},
		{"another has the name now", Record{UID: "b"}, Record{UID: "a"}, "east=b/0"},
		{"a tombstone that only the older one has", Record{UID: "b"}, Record{UID: "a", Forgotten: gone("x", "b")}, "east=b/0 -x"},
		{"a cluster that only the older one has", Record{Forgotten: gone("b")}, Record{UID: "a", Incarnation: 3, Forgotten: gone("x")},
			"east=a/3 -x -b"},
		{"let in again since", Record{Forgotten: gone("a?")}, Record{Forgotten: gone("a")}, "east=/0 -a(lifted)"},
	} {
		tc.newer.ClusterID, tc.older.ClusterID = "east", "east"
		if got := mergeRecord(tc.newer, tc.older).text(); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
	var many []string
	for i := range MaxForgotten {
		many = append(many, fmt.Sprint(i))
	}
	if got := mergeRecord(Record{Forgotten: gone(many...)}, Record{Forgotten: gone("old")}); len(got.Forgotten) != MaxForgotten ||
		got.Forgot("old") {
		t.Errorf("%d tombstones", len(got.Forgotten))
	}
}

// Of two copies the later revocation holds, with the keys that were issued since.
func TestMergedRevocations(t *testing.T) {
	early, late := time.Unix(1_800_000_000, 0).UTC(), time.Unix(1_800_000_100, 0).UTC()
	for _, c := range []struct {
		newer, older, want time.Time
		of, keys           string
	}{
		{late, early, late, "a", "new"}, {early, late, late, "a", "old"}, {time.Time{}, early, early, "a", "old"},
		{early, time.Time{}, early, "a", "new"}, {early, early, early, "a", "new"}, {early, late, late, "another", "new"}, {of: "a", keys: "new"},
	} {
		newer := Record{UID: "a", RevokedAt: c.newer, Keys: []string{"new"}}
		got := mergeRecord(newer, Record{UID: c.of, RevokedAt: c.older, Keys: []string{"old"}})
		if keys := strings.Join(got.Keys, " "); !got.RevokedAt.Equal(c.want) || keys != c.keys {
			t.Errorf("of %s and %s: %s with %q, want %s with %q", c.newer, c.older, got.RevokedAt, keys, c.want, c.keys)
		}
	}
}

func TestMerge(t *testing.T) {
	named := func(id string, r Record) Record { r.ClusterID = id; return r }
	older := []Record{named("east", Record{UID: "e", Incarnation: 2, Term: "old"}), named("west", Record{UID: "w"}),
		named("south", Record{Forgotten: gone("s")})}
	newer := []Record{
		named("north", Record{UID: "n"}), named("west", Record{Forgotten: gone("w", "x?")}),
		named("east", Record{UID: "e", Incarnation: 2, Term: "new"}),
		named("south", Record{Forgotten: gone("s")}), named("free", Record{Forgotten: gone("f?")}),
	}
	merged := Merge(newer, older)
	var texts []string
	for _, r := range merged {
		texts = append(texts, r.text())
	}
	if got := strings.Join(texts, ", "); got != "east=e/2, west=/0 -w -x(lifted), south=/0 -s, north=n/0, free=/0 -f(lifted)" {
		t.Errorf("merged: %s", got)
	}
	if merged[0].Term != "new" {
		t.Errorf("of equal incarnations the term is that of %q", merged[0].Term)
	}
	registered, forgotten := beyond(older, merged)
	if got := fmt.Sprint(registered, forgotten); got != "[north] [west]" {
		t.Errorf("registered and forgotten since: %s", got)
	}
	registered, forgotten = beyond([]Record{named("east", Record{UID: "before"})}, []Record{named("east", Record{UID: "e"})})
	if got := fmt.Sprint(registered, forgotten); got != "[east] []" {
		t.Errorf("another has the name: %s", got)
	}
}

func TestFollowed(t *testing.T) {
	id := func(id string, epoch int32) *Identity { return &Identity{ID: id, Epoch: epoch} }
	for _, tc := range []struct {
		name          string
		there, backup copyOf
		want          bool
	}{
		{"the backup is an earlier moment", copyOf{id("a", 1), 9}, copyOf{id("a", 1), 7}, false},
		{"the backup is of this moment", copyOf{id("a", 1), 9}, copyOf{id("a", 1), 9}, false},
		{"an older volume was put there", copyOf{id("a", 1), 7}, copyOf{id("a", 1), 9}, true},
		{"a ledger was lost since", copyOf{id("b", 2), 3}, copyOf{id("a", 1), 9}, false},
		{"a hub began anew there", copyOf{id("b", 0), 3}, copyOf{id("a", 1), 9}, true},
		{"neither lost one", copyOf{id("b", 0), 3}, copyOf{id("a", 0), 9}, false},
		{"from before ledgers had names", copyOf{id(unnamed, 0), 3}, copyOf{id(unnamed, 0), 9}, false},
		{"no hub ever ran there", copyOf{nil, 0}, copyOf{id("a", 0), 9}, true},
		{"no hub ever ran anywhere", copyOf{}, copyOf{}, false},
	} {
		if got := tc.there.followed(tc.backup); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}
