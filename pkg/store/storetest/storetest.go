// SPDX-License-Identifier: Apache-2.0

// Package storetest is the conformance suite of store.Store: the guarantees that the hub relies on, for every implementation.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navix.sh/atoll/pkg/store"
)

// Run checks an implementation. open returns an empty store, which the suite's cleanup closes.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for name, check := range map[string]func(*testing.T, store.Store){
		"get and put":             getAndPut,
		"revisions never repeat":  revisionsNeverRepeat,
		"conditions":              conditions,
		"all or nothing":          allOrNothing,
		"range":                   ranges,
		"one winner":              oneWinner,
		"concurrent writers":      concurrentWriters,
		"values are copies":       valuesAreCopies,
		"a cancelled call":        cancelledCall,
		"keys are checked":        keysAreChecked,
		"closed stores refuse":    closedRefuses,
		"an empty value is there": emptyValue,
	} {
		t.Run(name, func(t *testing.T) { check(t, open(t)) })
	}
}

func put(t *testing.T, s store.Store, key, value string) uint64 {
	t.Helper()
	rev, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: key, Value: []byte(value)}}})
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	return rev
}

func get(t *testing.T, s store.Store, key string) (store.Entry, bool) {
	t.Helper()
	e, ok, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return e, ok
}

func getAndPut(t *testing.T, s store.Store) {
	if _, ok := get(t, s, "a"); ok {
		t.Fatal("an empty store has an entry")
	}
	rev := put(t, s, "a", "1")
	got, ok := get(t, s, "a")
	want := store.Entry{Key: "a", Value: []byte("1"), Revision: rev}
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Fatalf("found %t (-want +got):\n%s", ok, diff)
	}
}

func emptyValue(t *testing.T, s store.Store) {
	put(t, s, "a", "")
	if e, ok := get(t, s, "a"); !ok || len(e.Value) != 0 {
		t.Fatalf("found %t with %q", ok, e.Value)
	}
}

func revisionsNeverRepeat(t *testing.T, s store.Store) {
	first := put(t, s, "a", "1")
	if _, err := s.Commit(t.Context(), store.Txn{Deletes: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	second := put(t, s, "a", "1")
	if second <= first {
		t.Fatalf("revision %d after %d: a reader could take the new entry for the old", second, first)
	}
	if _, err := store.CompareAndSwap(t.Context(), s, "a", first, nil); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("swap against a deleted entry's revision: %v", err)
	}
}

func conditions(t *testing.T, s store.Store) {
	ctx := t.Context()
	rev, err := store.CompareAndSwap(ctx, s, "a", 0, []byte("1"))
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	if _, err := store.CompareAndSwap(ctx, s, "a", 0, []byte("2")); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("create over an entry: %v", err)
	}
	if _, err := store.CompareAndSwap(ctx, s, "a", rev+1, []byte("2")); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("wrong revision: %v", err)
	}
	if _, err := store.CompareAndSwap(ctx, s, "a", rev, []byte("2")); err != nil {
		t.Fatalf("right revision: %v", err)
	}
	if e, _ := get(t, s, "a"); string(e.Value) != "2" {
		t.Fatalf("value %q", e.Value)
	}
}

func allOrNothing(t *testing.T, s store.Store) {
	rev := put(t, s, "a", "1")
	txn := store.Txn{
		If:      []store.Condition{{Key: "a", Revision: rev}, {Key: "b", Revision: 7}},
		Puts:    []store.Put{{Key: "b", Value: []byte("1")}, {Key: "c", Value: []byte("1")}},
		Deletes: []string{"a"},
	}
	if _, err := s.Commit(t.Context(), txn); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("one condition fails: %v", err)
	}
	if all, err := s.Range(t.Context(), "", "", 0); err != nil || len(all) != 1 {
		t.Fatalf("a conflict left %d entries, %v", len(all), err)
	}
	txn.If[1].Revision = 0
	got, err := s.Commit(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := get(t, s, "b")
	c, _ := get(t, s, "c")
	if _, ok := get(t, s, "a"); ok || b.Revision != got || c.Revision != got {
		t.Fatalf("a there: %t, b at %d, c at %d, want both at %d", ok, b.Revision, c.Revision, got)
	}
}

func ranges(t *testing.T, s store.Store) {
	for _, k := range []string{"b/1", "a", "b/3", "c", "b/2", "b"} {
		put(t, s, k, "v"+k)
	}
	for _, tc := range []struct {
		prefix, after string
		limit         int
		want          string
	}{
		{"", "", 0, "a b b/1 b/2 b/3 c"},
		{"b/", "", 0, "b/1 b/2 b/3"},
		{"b/", "b/1", 0, "b/2 b/3"},
		{"b/", "b/1x", 1, "b/2"},
		{"b/", "a", 2, "b/1 b/2"},
		{"b/", "c", 0, ""},
		{"d", "", 0, ""},
		{"", "d", 0, ""},
		{"", "a0", 1, "b"},
		{"", "b", 2, "b/1 b/2"},
		{"b", "b", 0, "b/1 b/2 b/3"},
		{"b", "a", 0, "b b/1 b/2 b/3"},
	} {
		entries, err := s.Range(t.Context(), tc.prefix, tc.after, tc.limit)
		if err != nil {
			t.Fatal(err)
		}
		keys := make([]string, 0, len(entries))
		for _, e := range entries {
			keys = append(keys, e.Key)
			if string(e.Value) != "v"+e.Key || e.Revision == 0 {
				t.Errorf("entry %+v", e)
			}
		}
		if got := strings.Join(keys, " "); got != tc.want {
			t.Errorf("range %q after %q limit %d: %q, want %q", tc.prefix, tc.after, tc.limit, got, tc.want)
		}
	}
}

func oneWinner(t *testing.T, s store.Store) {
	const racers = 32
	var wins, conflicts int
	for err := range race(racers, func(i int) error {
		_, err := store.CompareAndSwap(t.Context(), s, "key", 0, fmt.Append(nil, i))
		return err
	}) {
		switch {
		case err == nil:
			wins++
		case errors.Is(err, store.ErrConflict):
			conflicts++
		default:
			t.Fatal(err)
		}
	}
	if wins != 1 || conflicts != racers-1 {
		t.Fatalf("%d winners, %d conflicts", wins, conflicts)
	}
}

func concurrentWriters(t *testing.T, s store.Store) {
	const writers, each = 16, 20
	for err := range race(writers, func(i int) error {
		for n := range each {
			key := fmt.Sprintf("w%02d/%02d", i, n)
			rev, err := store.CompareAndSwap(t.Context(), s, key, 0, []byte(key))
			if err != nil {
				return err
			}
			if e, ok, err := s.Get(t.Context(), key); err != nil || !ok || e.Revision != rev {
				return fmt.Errorf("%s after its commit: %+v %t %w", key, e, ok, err)
			}
		}
		return nil
	}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	entries, err := s.Range(t.Context(), "w", "", 0)
	if err != nil || len(entries) != writers*each {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
}

func race(n int, f func(i int) error) <-chan error {
	errs := make(chan error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs <- f(i) })
	}
	wg.Wait()
	close(errs)
	return errs
}

func valuesAreCopies(t *testing.T, s store.Store) {
	value := []byte("1")
	if _, err := store.CompareAndSwap(t.Context(), s, "a", 0, value); err != nil {
		t.Fatal(err)
	}
	value[0] = '2'
	e, _ := get(t, s, "a")
	if string(e.Value) != "1" {
		t.Fatalf("the store kept the caller's slice: %q", e.Value)
	}
	e.Value[0] = '3'
	if e, _ := get(t, s, "a"); string(e.Value) != "1" {
		t.Fatalf("the store handed out its own slice: %q", e.Value)
	}
}

func cancelledCall(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Get(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("get: %v", err)
	}
	if _, err := s.Range(ctx, "", "", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("range: %v", err)
	}
}

func keysAreChecked(t *testing.T, s store.Store) {
	for _, key := range []string{"", strings.Repeat("x", 1025)} {
		if _, err := store.CompareAndSwap(t.Context(), s, key, 0, nil); !errors.Is(err, store.ErrKey) {
			t.Errorf("key of %d bytes: %v", len(key), err)
		}
	}
	if _, err := store.CompareAndSwap(t.Context(), s, strings.Repeat("x", 1024), 0, nil); err != nil {
		t.Errorf("a key of 1024 bytes: %v", err)
	}
}

func closedRefuses(t *testing.T, s store.Store) {
	put(t, s, "a", "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.CompareAndSwap(t.Context(), s, "b", 0, nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("commit: %v", err)
	}
	if _, _, err := s.Get(t.Context(), "a"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("get: %v", err)
	}
	if _, err := s.Range(t.Context(), "", "", 0); !errors.Is(err, store.ErrClosed) {
		t.Errorf("range: %v", err)
	}
}
