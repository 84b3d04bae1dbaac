// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/store"
)

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
