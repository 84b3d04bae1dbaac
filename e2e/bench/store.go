// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"navix.sh/atoll/pkg/store"
)

// recordSize is about that of a claim's record.
const recordSize = 512

// storeWrites measures what a claim key adds at the least: one durable write, grouped with those of its neighbours.
func storeWrites(ctx context.Context) (r result, err error) {
	dir, err := os.MkdirTemp("", "atoll-bench-store-")
	if err != nil {
		return result{}, fmt.Errorf("making a folder for the store: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bolt, err := store.OpenBolt(filepath.Join(dir, "claims.db"), "claims")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, bolt.Close()) }()
	value := make([]byte, recordSize)
	l := closedLoop(ctx, ceilingConcurrency, func(ctx context.Context, i int) error {
		_, err := bolt.Commit(ctx, store.Txn{Puts: []store.Put{{Key: fmt.Sprintf("claims/%d", i), Value: value}}})
		return err
	})
	r = result{Name: fmt.Sprintf("grouped store write, %d writers", ceilingConcurrency), Value: millis(quantile(l.latencies, 0.5)), Unit: "ms"}
	return r.withLatencies(l.latencies, l.errors), nil
}
