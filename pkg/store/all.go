// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"iter"
)

// All iterates over the entries whose key has the prefix, in key order. It reads them in pages of the given size, and stops at an error of
// the store. A page outside 1..MaxRange means MaxRange.
func All(ctx context.Context, s Store, prefix string, page int) iter.Seq2[Entry, error] {
	page = entriesOf(page)
	return func(yield func(Entry, error) bool) {
		for after := ""; ; {
			entries, err := s.Range(ctx, prefix, after, page)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
				after = e.Key
			}
			if len(entries) < page {
				return
			}
		}
	}
}
