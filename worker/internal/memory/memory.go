// SPDX-License-Identifier: Apache-2.0

// Package memory provides a map that drops entries: each after a time, and the oldest when there are too many (I10). The caller passes the
// time, which is monotonic (I11). A Map is not safe for concurrent use.
package memory

import (
	"container/list"
	"iter"
	"time"
)

// Map keeps its entries in insertion order. All have the same lifetime, so they are dropped in that order.
type Map[V any] struct {
	ttl     time.Duration
	max     int
	order   list.List // of *entry[V]
	entries map[string]*list.Element
	onDrop  func(key string, value V)
}

type entry[V any] struct {
	key   string
	value V
	since time.Time
}

// New returns an empty Map. onDrop is called with each entry that is dropped; it may be nil.
func New[V any](ttl time.Duration, most int, onDrop func(key string, value V)) *Map[V] {
	return &Map[V]{ttl: ttl, max: most, entries: map[string]*list.Element{}, onDrop: onDrop}
}

// Put stores a value. Its lifetime starts now, also for a key that was in the map before.
func (m *Map[V]) Put(now time.Time, key string, value V) {
	m.sweep(now)
	if at, ok := m.entries[key]; ok {
		m.order.Remove(at)
	} else if m.order.Len() >= m.max {
		m.drop(m.order.Front())
	}
	m.entries[key] = m.order.PushBack(&entry[V]{key: key, value: value, since: now})
}

// Get returns the value of a key.
func (m *Map[V]) Get(now time.Time, key string) (value V, ok bool) {
	m.sweep(now)
	if at := m.entries[key]; at != nil {
		return valueAt[V](at), true
	}
	return value, false
}

// Remove drops an entry before its time.
func (m *Map[V]) Remove(key string) {
	if at, ok := m.entries[key]; ok {
		m.drop(at)
	}
}

// Oldest returns the entry that was put in first.
func (m *Map[V]) Oldest(now time.Time) (value V, ok bool) {
	for v := range m.All(now) {
		return v, true
	}
	return value, false
}

// All iterates over the entries, oldest first.
func (m *Map[V]) All(now time.Time) iter.Seq[V] {
	m.sweep(now)
	return func(yield func(V) bool) {
		for at := m.order.Front(); at != nil && yield(valueAt[V](at)); at = at.Next() {
		}
	}
}

// Len returns the number of entries.
func (m *Map[V]) Len() int { return m.order.Len() }

func (m *Map[V]) sweep(now time.Time) {
	for front := m.order.Front(); front != nil && now.Sub(front.Value.(*entry[V]).since) >= m.ttl; front = m.order.Front() {
		m.drop(front)
	}
}

func (m *Map[V]) drop(at *list.Element) {
	e := m.order.Remove(at).(*entry[V])
	delete(m.entries, e.key)
	if m.onDrop != nil {
		m.onDrop(e.key, e.value)
	}
}

func valueAt[V any](at *list.Element) V { return at.Value.(*entry[V]).value }
