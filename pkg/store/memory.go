// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
)

// Memory is a Store that is lost with its process. Keys that arrive in order cost least.
type Memory struct {
	mu       sync.Mutex
	keys     []string // in order
	entries  map[string]Entry
	revision uint64
	closed   bool
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{entries: map[string]Entry{}} }

// Get implements Store.
func (m *Memory) Get(ctx context.Context, key string) (Entry, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return Entry{}, false, err
	}
	e, ok := m.entries[key]
	e.Value = bytes.Clone(e.Value)
	return e, ok, nil
}

// Range implements Store.
func (m *Memory) Range(ctx context.Context, prefix, after string, limit int) ([]Entry, error) {
	if limit < 1 || limit > MaxRange {
		limit = MaxRange
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return nil, err
	}
	at, found := slices.BinarySearch(m.keys, max(prefix, after))
	if found && after != "" && m.keys[at] == after {
		at++
	}
	var out []Entry
	for ; at < len(m.keys) && len(out) < limit && strings.HasPrefix(m.keys[at], prefix); at++ {
		e := m.entries[m.keys[at]]
		e.Value = bytes.Clone(e.Value)
		out = append(out, e)
	}
	return out, nil
}

// Commit implements Store.
func (m *Memory) Commit(ctx context.Context, txn Txn) (uint64, error) {
	for _, p := range txn.Puts {
		if len(p.Key) == 0 || len(p.Key) > maxKey {
			return 0, ErrKey
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return 0, err
	}
	for _, c := range txn.If {
		if m.entries[c.Key].Revision != c.Revision {
			return 0, ErrConflict
		}
	}
	m.revision++
	for _, p := range txn.Puts {
		if at, found := slices.BinarySearch(m.keys, p.Key); !found {
			m.keys = slices.Insert(m.keys, at, p.Key)
		}
		m.entries[p.Key] = Entry{Key: p.Key, Value: append([]byte{}, p.Value...), Revision: m.revision}
	}
	for _, key := range txn.Deletes {
		if at, found := slices.BinarySearch(m.keys, key); found {
			m.keys = slices.Delete(m.keys, at, at+1)
			delete(m.entries, key)
		}
	}
	return m.revision, nil
}

// Close implements Store.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

func (m *Memory) usable(ctx context.Context) error {
	if m.closed {
		return ErrClosed
	}
	return ctx.Err()
}
