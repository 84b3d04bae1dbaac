// SPDX-License-Identifier: Apache-2.0

// Package priority provides a priority queue (container/heap) whose items store their position in it, so that any of them can be moved and
// removed. Everything except New, Len and First is O(log n).
package priority

import "container/heap"

// None is the position of an item that is in no queue.
const None = -1

// Queue is a priority queue. It is not safe for concurrent use.
type Queue[T any] struct{ items items[T] }

// New returns an empty queue. place returns where an item stores its position, which is None after it was removed.
func New[T any](before func(a, b T) bool, place func(T) *int) Queue[T] {
	return Queue[T]{items[T]{before: before, place: place}}
}

// Len returns the number of items.
func (q *Queue[T]) Len() int { return len(q.items.all) }

// First returns the item that comes before all others, if any.
func (q *Queue[T]) First() (item T, ok bool) {
	if q.Len() == 0 {
		return item, false
	}
	return q.items.all[0], true
}

// Push adds an item.
func (q *Queue[T]) Push(item T) { heap.Push(&q.items, item) }

// Fix moves an item to its new position after it has changed.
func (q *Queue[T]) Fix(item T) { heap.Fix(&q.items, *q.items.place(item)) }

// Remove removes an item.
func (q *Queue[T]) Remove(item T) { heap.Remove(&q.items, *q.items.place(item)) }

// items is a heap.Interface.
type items[T any] struct {
	all    []T
	before func(a, b T) bool
	place  func(T) *int
}

func (h *items[T]) Len() int { return len(h.all) }

func (h *items[T]) Less(i, j int) bool { return h.before(h.all[i], h.all[j]) }

func (h *items[T]) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	*h.place(h.all[i]), *h.place(h.all[j]) = i, j
}

func (h *items[T]) Push(x any) {
	item, _ := x.(T)
	*h.place(item) = len(h.all)
	h.all = append(h.all, item)
}

func (h *items[T]) Pop() any {
	var none T
	last := len(h.all) - 1
	item := h.all[last]
	h.all[last] = none
	h.all = h.all[:last]
	*h.place(item) = None
	return item
}
