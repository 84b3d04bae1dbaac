// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"
)

// MaxRange is the maximum number of entries that one Range returns.
const MaxRange = 10_000

// entriesOf returns the maximum number of entries that a limit means. A limit outside 1..MaxRange means MaxRange.
func entriesOf(limit int) int {
	if limit < 1 || limit > MaxRange {
		return MaxRange
	}
	return limit
}

// LazyPause is the maximum time that a lazy transaction waits for another one.
const LazyPause = 10 * time.Millisecond

var (
	// ErrConflict means that a condition of a transaction did not hold. Nothing was changed.
	ErrConflict = errors.New("store: a condition of the transaction does not hold")
	// ErrClosed means that the store was closed before the transaction began. Nothing was changed.
	ErrClosed = errors.New("store: closed")
	// ErrKey means that a key is empty or too long.
	ErrKey = errors.New("store: a key has 1 to 1024 bytes")
)

// Store is a transactional key-value store. All methods are safe for concurrent use.
type Store interface {
	// Get returns the entry of key, and false when there is none.
	Get(ctx context.Context, key string) (Entry, bool, error)
	// Range returns entries whose key has the prefix and sorts after `after` (empty: from the first), ordered by key, at most
	// limit of them; limits outside 1..MaxRange mean MaxRange.
	Range(ctx context.Context, prefix, after string, limit int) ([]Entry, error)
	// Commit applies txn atomically and returns once it is durable. Its revision is higher than every earlier revision, including those of
	// previous processes. If ctx ends first, the outcome is unknown.
	Commit(ctx context.Context, txn Txn) (revision uint64, err error)
	// Close waits for running commits.
	Close() error
}

// Entry is a key with its value and the revision of the transaction that wrote it.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
}

// Txn is a transaction: if every condition holds, every put and delete is applied. A key appears once.
type Txn struct {
	If      []Condition
	Puts    []Put
	Deletes []string
	// Lazy marks a write without a waiting caller. It may be delayed by up to LazyPause, so that it shares a disk write with another
	// transaction.
	Lazy bool
}

// Condition holds when the key's entry has this revision; revision 0 means that there is no entry.
type Condition struct {
	Key      string
	Revision uint64
}

// Put writes one entry.
type Put struct {
	Key   string
	Value []byte
}

// CompareAndSwap writes value if the key's entry still has the given revision (0: no entry).
func CompareAndSwap(ctx context.Context, s Store, key string, revision uint64, value []byte) (uint64, error) {
	return s.Commit(ctx, Txn{If: []Condition{{Key: key, Revision: revision}}, Puts: []Put{{Key: key, Value: value}}})
}
