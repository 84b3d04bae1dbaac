// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navix.sh/atoll/pkg/store"
)

// RunShared checks what a store of several processes adds. open returns two clients of one empty store.
func RunShared(t *testing.T, open func(t *testing.T) (a, b store.Shared)) {
	for name, check := range map[string]func(t *testing.T, a, b store.Shared){
		"a watch has every change once":     watchHasEveryChange,
		"a watch starts where told":         watchStartsWhereTold,
		"a watch ends with its context":     watchEnds,
		"one winner of two clients":         oneWinnerOfTwo,
		"one leader":                        oneLeader,
		"a leader that is done leads again": leadsAgain,
	} {
		t.Run(name, func(t *testing.T) {
			a, b := open(t)
			check(t, a, b)
		})
	}
}

// follow watches in the background. Each batch is a line; deletions end in "-".
func follow(t *testing.T, s store.Shared, prefix string, after uint64) <-chan string {
	ctx, cancel := context.WithCancel(t.Context())
	lines, done := make(chan string, 1024), make(chan error, 1)
	go func() {
		done <- s.Watch(ctx, prefix, after, func(events []store.Event) {
			line := ""
			for _, e := range events {
				if line += " " + e.Key + "=" + string(e.Value); e.Deleted {
					line += "-"
				}
			}
			lines <- line
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	})
	return lines
}

func watchHasEveryChange(t *testing.T, a, b store.Shared) {
	lines := follow(t, b, "x/", 0)
	put(t, a, "x/1", "one")
	put(t, a, "y/1", "other")
	if _, err := a.Commit(t.Context(), store.Txn{
		Puts: []store.Put{{Key: "x/2", Value: []byte("two")}, {Key: "x/3", Value: []byte("three")}}, Deletes: []string{"x/1"},
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		put(t, a, "x/4", fmt.Sprint(i))
	}
	if diff := cmp.Diff(" x/1=one", <-lines); diff != "" {
		t.Fatal(diff)
	}
	if got := <-lines; len(got) != len(" x/1=- x/2=two x/3=three") {
		t.Fatalf("a transaction came as %q", got)
	}
	for i := range 100 {
		if got, want := <-lines, fmt.Sprintf(" x/4=%d", i); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func watchStartsWhereTold(t *testing.T, a, b store.Shared) {
	put(t, a, "x", "before")
	at := put(t, a, "x", "at")
	put(t, a, "x", "after")
	if got := <-follow(t, b, "x", at); got != " x=after" {
		t.Fatalf("got %q", got)
	}
}

func watchEnds(t *testing.T, _, b store.Shared) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Watch(ctx, "x", 0, func([]store.Event) {}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func oneWinnerOfTwo(t *testing.T, a, b store.Shared) {
	rev := put(t, a, "x", "0")
	if _, err := store.CompareAndSwap(t.Context(), b, "x", rev, []byte("b")); err != nil {
		t.Fatal(err)
	}
	if _, err := store.CompareAndSwap(t.Context(), a, "x", rev, []byte("a")); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("got %v", err)
	}
	if e, _ := get(t, a, "x"); string(e.Value) != "b" {
		t.Fatalf("got %q", e.Value)
	}
}

func oneLeader(t *testing.T, a, b store.Shared) {
	var leaders, most atomic.Int32
	led := make(chan string, 2)
	end := map[string]context.CancelFunc{}
	done := make(chan error, 2)
	for name, s := range map[string]store.Shared{"a": a, "b": b} {
		ctx, cancel := context.WithCancel(t.Context())
		end[name] = cancel
		go func() {
			done <- s.Lead(ctx, "sweep", func(ctx context.Context) {
				most.Store(max(most.Load(), leaders.Add(1)))
				led <- name
				<-ctx.Done()
				leaders.Add(-1)
			})
		}()
	}
	first := <-led
	end[first]()
	second := <-led
	end[second]()
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Lead ended with %v", err)
		}
	}
	if first == second || most.Load() != 1 {
		t.Fatalf("%s led, then %s, at most %d at once", first, second, most.Load())
	}
}

func leadsAgain(t *testing.T, a, _ store.Shared) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	terms := 0
	err := a.Lead(ctx, "sweep", func(context.Context) {
		if terms++; terms == 2 {
			cancel()
		}
	})
	if terms != 2 || !errors.Is(err, context.Canceled) {
		t.Fatalf("it led %d times, and ended with %v", terms, err)
	}
}
