// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/store"
)

// A lazy transaction waits for another one, no longer than allowed.
func TestLazyTransactionsWaitForCompany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	synctest.Test(t, func(t *testing.T) {
		s := open(t, path)
		begin := time.Now()
		lazy := make(chan time.Duration, 1)
		late := func(key string) {
			if _, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: key}}, Lazy: true}); err != nil {
				t.Error(err)
			}
			lazy <- time.Since(begin)
		}
		go late("alone")
		if took := <-lazy; took != store.LazyPause {
			t.Errorf("a lazy transaction by itself took %s, want %s", took, store.LazyPause)
		}
		begin = time.Now()
		go late("first")
		synctest.Wait()
		time.Sleep(time.Millisecond)
		go late("second")
		if first, second := <-lazy, <-lazy; first != second || first != store.LazyPause {
			t.Errorf("two lazy transactions took until %s and %s, want %s for both", first, second, store.LazyPause)
		}
		begin = time.Now()
		go late("with another")
		synctest.Wait()
		_, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: "urgent"}}})
		must.Succeed(t, err)
		if took := <-lazy; took != 0 {
			t.Errorf("a lazy transaction took %s although another one was carried out at once", took)
		}
		go late("before the close")
		synctest.Wait()
		must.Succeed(t, s.Close())
		if took := <-lazy; took != 0 {
			t.Errorf("closing took %s longer", took)
		}
	})
}
