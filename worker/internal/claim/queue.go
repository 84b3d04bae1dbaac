// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"container/heap"
	"container/list"
)

// tenant is whom the queue is fair to. It is as trustworthy as the team and user of a request: the hub takes them from
// credentials.
type tenant struct{ team, user string }

// waitQueue holds the claims that wait for a Pod. Tenants take turns, one Pod each, and a tenant's claims go in the order in
// which they came. A claim keeps the ticket of its coming and the turn in which it got a Pod: one that lost the Pod to another
// writer comes back with both, so to its old place, and its tenant has lost no turn.
//
// Whoever has just been served, and whoever is new, goes behind all that wait. A turn is a number that only grows, and the
// lowest is next: so a turn that was given back is where it was, however many were served meanwhile. All of it is O(log n).
type waitQueue struct {
	lines  map[tenant]*line
	turns  ordered[*line] // by whose turn it is
	sizes  ordered[*line] // the longest first
	count  int
	ticket uint64
	turn   uint64
}

// line is where the claims of one tenant wait. There is none without a claim in it.
type line struct {
	tenant tenant
	fresh  list.List    // of *op, that had no Pod yet, in the order in which they came
	back   ordered[*op] // that had one and lost it: they came before all that are fresh
	turn   uint64       // of the first fresh one
	byTurn int
	bySize int
}

func newWaitQueue() waitQueue {
	return waitQueue{
		lines: map[tenant]*line{},
		turns: ordered[*line]{before: comesFirst, index: func(l *line) *int { return &l.byTurn }},
		sizes: ordered[*line]{before: isLonger, index: func(l *line) *int { return &l.bySize }},
	}
}

func (q *waitQueue) len() int { return q.count }

// number gives a claim its ticket, once.
func (q *waitQueue) number(o *op) {
	if o.ticket == 0 {
		q.ticket++
		o.ticket = q.ticket
	}
}

// pass is a turn that a claim takes without having waited, because nobody waits.
func (q *waitQueue) pass(o *op) {
	if o.turn == 0 {
		o.turn = q.nextTurn()
	}
}

func (q *waitQueue) nextTurn() uint64 {
	q.turn++
	return q.turn
}

func (q *waitQueue) add(o *op) {
	l, known := q.lines[o.tenant]
	if !known {
		l = &line{tenant: o.tenant, turn: q.nextTurn(), back: ordered[*op]{before: cameFirst, index: func(o *op) *int { return &o.index }}}
		q.lines[o.tenant] = l
	}
	l.put(o)
	q.count++
	if known {
		q.settle(l)
		return
	}
	heap.Push(&q.turns, l)
	heap.Push(&q.sizes, l)
}

// next takes out the claim that the next Pod goes to, and counts its tenant's turn; nil when nobody waits.
func (q *waitQueue) next() *op {
	l, ok := q.turns.first()
	if !ok {
		return nil
	}
	o := l.front()
	l.take(o)
	if o.turn == 0 {
		o.turn, l.turn = l.turn, q.nextTurn()
	}
	q.count--
	q.settle(l)
	return o
}

// remove takes out a claim that gets no Pod, wherever it is. A turn that it had is its tenant's still.
func (q *waitQueue) remove(o *op) {
	l := o.line
	if l != nil {
		l.take(o)
		q.count--
	} else if l = q.lines[o.tenant]; l == nil {
		return
	}
	if o.turn != 0 {
		l.turn = min(l.turn, o.turn)
	}
	q.settle(l)
}

// settle finds a line its place anew, or drops it.
func (q *waitQueue) settle(l *line) {
	if l.front() != nil {
		heap.Fix(&q.turns, l.byTurn)
		heap.Fix(&q.sizes, l.bySize)
		return
	}
	heap.Remove(&q.turns, l.byTurn)
	heap.Remove(&q.sizes, l.bySize)
	delete(q.lines, l.tenant)
}

// newest is the claim that came last of the tenant that has most of them in the queue, and how many that are. Claims that are
// back do not count: they keep their place whatever comes.
func (q *waitQueue) newest() (*op, int) {
	l, ok := q.sizes.first()
	if !ok {
		return nil, 0
	}
	return l.last(), l.fresh.Len()
}

// of is how many claims of a tenant wait that had no Pod yet.
func (q *waitQueue) of(t tenant) int {
	if l := q.lines[t]; l != nil {
		return l.fresh.Len()
	}
	return 0
}

func (l *line) put(o *op) {
	o.line = l
	if o.turn != 0 {
		heap.Push(&l.back, o)
	} else {
		o.place = l.fresh.PushBack(o)
	}
}

func (l *line) take(o *op) {
	o.line = nil
	if o.place == nil {
		heap.Remove(&l.back, o.index)
		return
	}
	l.fresh.Remove(o.place)
	o.place = nil
}

func (l *line) front() *op {
	if o, ok := l.back.first(); ok {
		return o
	}
	return opAt(l.fresh.Front())
}

func (l *line) last() *op { return opAt(l.fresh.Back()) }

func opAt(at *list.Element) *op {
	if at == nil {
		return nil
	}
	o, _ := at.Value.(*op)
	return o
}

func cameFirst(a, b *op) bool { return a.ticket < b.ticket }

func comesFirst(a, b *line) bool { return a.due() < b.due() }

// due is the turn of the line's first claim.
func (l *line) due() uint64 {
	if o, ok := l.back.first(); ok {
		return o.turn
	}
	return l.turn
}

// isLonger puts the line with the newest claim first among equals.
func isLonger(a, b *line) bool {
	if n, m := a.fresh.Len(), b.fresh.Len(); n != m || n == 0 {
		return n > m
	}
	return a.last().ticket > b.last().ticket
}

// ordered is a heap whose items know where they are, so that any of them can be moved and taken out.
type ordered[T any] struct {
	items  []T
	before func(a, b T) bool
	index  func(T) *int
}

func (h *ordered[T]) first() (item T, ok bool) {
	if len(h.items) == 0 {
		return item, false
	}
	return h.items[0], true
}

// Len, Less, Swap, Push and Pop are for package heap.
func (h *ordered[T]) Len() int { return len(h.items) }

func (h *ordered[T]) Less(i, j int) bool { return h.before(h.items[i], h.items[j]) }

func (h *ordered[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.index(h.items[i]), *h.index(h.items[j]) = i, j
}

func (h *ordered[T]) Push(item any) {
	it, _ := item.(T)
	*h.index(it) = len(h.items)
	h.items = append(h.items, it)
}

func (h *ordered[T]) Pop() any {
	var none T
	last := len(h.items) - 1
	it := h.items[last]
	h.items[last] = none
	h.items = h.items[:last]
	return it
}
