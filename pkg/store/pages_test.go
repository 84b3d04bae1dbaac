// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"fmt"
	"math/rand"
	"path/filepath"
	"testing"
)

// A file that has grown, shrunk and grown again, with values over many pages, is sound whenever it is opened.
func TestASoundFileIsTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "claims.db")
	r := rand.New(rand.NewSource(1))
	for round := range 6 {
		s, err := OpenBolt(path, "claims")
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for range 20 {
			var txn Txn
			for _, n := range r.Perm(20_000)[:500] {
				key := fmt.Sprintf("claim/%05d", n)
				switch {
				case round%2 == 1:
					txn.Deletes = append(txn.Deletes, key)
				case n%1000 == 0:
					txn.Puts = append(txn.Puts, Put{Key: key, Value: bytes.Repeat([]byte{0xff}, 70_000)})
				default:
					txn.Puts = append(txn.Puts, Put{Key: key, Value: make([]byte, n%900)})
				}
			}
			if _, err := s.Commit(t.Context(), txn); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
