// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
)

// Memory is a Store in memory. It is fastest if keys are added in order.
type Memory struct {
	mu       sync.Mutex
	keys     []string // in order
	entries  map[string]Entry
	revision uint64
	closed   bool
	log      []Event                  // changes of all transactions, for watches
	kept     uint64                   // revision of the first entry of log, if earlier ones were dropped
	grew     chan struct{}            // closed when log grows
	leaders  map[string]chan struct{} // by election, each holds a token while there is no leader
}

var _ Shared = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{entries: map[string]Entry{}, grew: make(chan struct{}), leaders: map[string]chan struct{}{}}
}

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
	limit = entriesOf(limit)
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
		m.log = append(m.log, Event{Entry: m.entries[p.Key]})
	}
	for _, key := range txn.Deletes {
		if at, found := slices.BinarySearch(m.keys, key); found {
			m.keys = slices.Delete(m.keys, at, at+1)
			delete(m.entries, key)
			m.log = append(m.log, Event{Entry: Entry{Key: key, Revision: m.revision}, Deleted: true})
		}
	}
	close(m.grew)
	m.grew = make(chan struct{})
	m.trim()
	return m.revision, nil
}

// maxLog is the minimum number of changes that a Memory keeps for watches.
const maxLog = 4096

// trim drops old changes. The caller holds mu.
func (m *Memory) trim() {
	if len(m.log) >= 2*maxLog {
		m.log = slices.Clone(m.log[len(m.log)-maxLog:])
		m.kept = m.log[0].Revision
	}
}

// Revision implements Shared.
func (m *Memory) Revision() (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision, nil
}

// Watch implements Shared.
func (m *Memory) Watch(ctx context.Context, prefix string, after uint64, changed func([]Event)) error {
	for {
		events, grew, err := m.since(prefix, after)
		if err != nil {
			return err
		}
		for len(events) > 0 {
			after = events[0].Revision
			end := 1
			for end < len(events) && events[end].Revision == after {
				end++
			}
			changed(events[:end:end])
			events = events[end:]
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-grew:
		}
	}
}

func (m *Memory) since(prefix string, after uint64) ([]Event, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, nil, ErrClosed
	}
	if after < m.kept {
		return nil, nil, ErrCompacted
	}
	at, _ := slices.BinarySearchFunc(m.log, after+1, func(e Event, revision uint64) int { return cmp.Compare(e.Revision, revision) })
	var out []Event
	for _, e := range m.log[at:] {
		if strings.HasPrefix(e.Key, prefix) {
			e.Value = bytes.Clone(e.Value)
			out = append(out, e)
		}
	}
	return out, m.grew, nil
}

// Lead implements Shared.
func (m *Memory) Lead(ctx context.Context, election string, lead func(ctx context.Context)) error {
	m.mu.Lock()
	vacancy := m.leaders[election]
	if vacancy == nil {
		vacancy = make(chan struct{}, 1)
		vacancy <- struct{}{}
		m.leaders[election] = vacancy
	}
	m.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-vacancy:
		}
		if ctx.Err() == nil { // select may have chosen the token although ctx had ended
			lead(ctx)
		}
		vacancy <- struct{}{}
	}
}

// Close implements Store.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		close(m.grew)
	}
	return nil
}

func (m *Memory) usable(ctx context.Context) error {
	if m.closed {
		return ErrClosed
	}
	return ctx.Err()
}
