// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"iter"
)

// All reads the entries whose key has the prefix, ordered by key, page of them at a time. An error of the store ends it.
func All(ctx context.Context, s Store, prefix string, page int) iter.Seq2[Entry, error] {
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
