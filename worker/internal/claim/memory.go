// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"container/list"
	"iter"
	"time"
)

// memory forgets: entries after a time, and the oldest when there are too many. All entries live equally long, so the
// order in which they were put in is the order in which they go.
type memory[V any] struct {
	ttl     time.Duration
	max     int
	order   list.List // of *remembered[V]
	entries map[string]*list.Element
	onDrop  func(key string, value V)
}

type remembered[V any] struct {
	key   string
	value V
	since time.Time
}

func newMemory[V any](ttl time.Duration, most int) *memory[V] {
	return &memory[V]{ttl: ttl, max: most, entries: map[string]*list.Element{}}
}

// put stores a value, and counts its time anew.
func (m *memory[V]) put(now time.Time, key string, value V) {
	m.sweep(now)
	if at, ok := m.entries[key]; ok {
		m.order.Remove(at)
	} else if m.order.Len() >= m.max {
		m.drop(m.order.Front())
	}
	m.entries[key] = m.order.PushBack(&remembered[V]{key: key, value: value, since: now})
}

func (m *memory[V]) get(now time.Time, key string) (V, bool) {
	m.sweep(now)
	var none V
	at, ok := m.entries[key]
	if !ok {
		return none, false
	}
	r, ok := at.Value.(*remembered[V])
	if !ok {
		return none, false
	}
	return r.value, true
}

// remove forgets an entry before its time.
func (m *memory[V]) remove(key string) {
	if at, ok := m.entries[key]; ok {
		m.drop(at)
	}
}

// oldest answers the entry that was put in first.
func (m *memory[V]) oldest(now time.Time) (V, bool) {
	m.sweep(now)
	if front := m.order.Front(); front != nil {
		if r, ok := front.Value.(*remembered[V]); ok {
			return r.value, true
		}
	}
	var none V
	return none, false
}

// all goes through the entries, those first that were put in first.
func (m *memory[V]) all(now time.Time) iter.Seq[V] {
	m.sweep(now)
	return func(yield func(V) bool) {
		for at := m.order.Front(); at != nil; at = at.Next() {
			if r, ok := at.Value.(*remembered[V]); ok && !yield(r.value) {
				return
			}
		}
	}
}

func (m *memory[V]) len() int { return m.order.Len() }

func (m *memory[V]) sweep(now time.Time) {
	for front := m.order.Front(); front != nil; front = m.order.Front() {
		if r, ok := front.Value.(*remembered[V]); ok && now.Sub(r.since) < m.ttl {
			return
		}
		m.drop(front)
	}
}

func (m *memory[V]) drop(at *list.Element) {
	r, ok := m.order.Remove(at).(*remembered[V])
	if !ok {
		return
	}
	delete(m.entries, r.key)
	if m.onDrop != nil {
		m.onDrop(r.key, r.value)
	}
}
