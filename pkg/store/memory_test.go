// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/store/storetest"
)

func TestMemoryConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return store.NewMemory() })
}

func TestMemoryIsShared(t *testing.T) {
	storetest.RunShared(t, func(*testing.T) (a, b store.Shared) {
		s := store.NewMemory()
		return s, s
	})
}

// ranges counts the pages that are read of a store.
type ranges struct {
	store.Store
	n int
}

func (r *ranges) Range(ctx context.Context, prefix, after string, limit int) ([]store.Entry, error) {
	r.n++
	return r.Store.Range(ctx, prefix, after, limit)
}

// All returns every entry of a prefix once, whatever the size of a page, and stops at an error of the store. A size below 1 means
// MaxRange.
func TestAllReadsEveryPage(t *testing.T) {
	s := store.NewMemory()
	var txn store.Txn
	for _, key := range []string{"a", "b/1", "b/2", "b/3", "b/4", "c"} {
		txn.Puts = append(txn.Puts, store.Put{Key: key})
	}
	_, err := s.Commit(t.Context(), txn)
	must.Succeed(t, err)
	for page, want := range map[int]int{-1: 1, 0: 1, 1: 5, 2: 3, 3: 2, 4: 2, 5: 1} {
		read, keys := &ranges{Store: s}, ""
		for e, err := range store.All(t.Context(), read, "b/", page) {
			must.Succeed(t, err)
			keys += e.Key + " "
		}
		if keys != "b/1 b/2 b/3 b/4 " || read.n != want {
			t.Fatalf("in pages of %d there are %q, in %d reads, want %d", page, keys, read.n, want)
		}
	}
	must.Succeed(t, s.Close())
	var errs []error
	for _, err := range store.All(t.Context(), s, "", 2) {
		errs = append(errs, err)
	}
	if len(errs) != 1 || !errors.Is(errs[0], store.ErrClosed) {
		t.Errorf("a closed store has %v", errs)
	}
}

// A page has at most MaxRange entries. All does not take such a page for the last one.
func TestAllReadsFullPages(t *testing.T) {
	s := store.NewMemory()
	var txn store.Txn
	for i := range store.MaxRange + 1 {
		txn.Puts = append(txn.Puts, store.Put{Key: fmt.Sprintf("%05d", i)})
	}
	_, err := s.Commit(t.Context(), txn)
	must.Succeed(t, err)
	n := 0
	for _, err := range store.All(t.Context(), s, "", store.MaxRange+1) {
		must.Succeed(t, err)
		n++
	}
	if n != store.MaxRange+1 {
		t.Errorf("%d of %d entries", n, store.MaxRange+1)
	}
}

// KeepFollowing loads again a second after a failure, passes later changes, and returns when the store is closed.
func TestKeepFollowingLoadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cannot := errors.New("cannot")
		var loads, failures, changes atomic.Int32
		done := make(chan struct{})
		go func() {
			defer close(done)
			store.KeepFollowing(ctx, s, store.FollowOptions{
				Prefix: "x/",
				Load: func(context.Context) error {
					if loads.Add(1) == 1 {
						return cannot
					}
					return nil
				},
				Changed: func(events []store.Event) { changes.Add(int32(len(events))) },
				Failed: func(err error) {
					if failures.Add(1); !errors.Is(err, cannot) {
						t.Errorf("failed with %v", err)
						cancel() // otherwise it never returns
					}
				},
				Clock: clock.RealClock{},
			})
		}()
		seen := func(when string, wantLoads, wantFailures, wantChanges int32) {
			t.Helper()
			synctest.Wait()
			if l, f, c := loads.Load(), failures.Load(), changes.Load(); l != wantLoads || f != wantFailures || c != wantChanges {
				t.Errorf("%s: %d loads, %d failures, %d changes, want %d, %d and %d", when, l, f, c, wantLoads, wantFailures, wantChanges)
			}
		}
		seen("at first", 1, 1, 0)
		time.Sleep(time.Second)
		seen("a second later", 2, 1, 0)
		_, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: "x/1"}, {Key: "y"}}})
		must.Succeed(t, err)
		seen("after a change", 2, 1, 1)
		must.Succeed(t, s.Close())
		<-done
		seen("closed", 2, 1, 1)
	})
}
