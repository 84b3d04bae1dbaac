// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"container/list"

	"navix.sh/atoll/worker/internal/priority"
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
	turns  priority.Queue[*line] // by whose turn it is
	sizes  priority.Queue[*line] // the longest first
	count  int
	ticket uint64
	turn   uint64
}

// line is where the claims of one tenant wait. There is none without a claim in it.
type line struct {
	tenant tenant
	fresh  list.List           // of *op, that had no Pod yet, in the order in which they came
	back   priority.Queue[*op] // that had one and lost it: they came before all that are fresh
	turn   uint64              // of the first fresh one
	byTurn int
	bySize int
}

func newWaitQueue() waitQueue {
	return waitQueue{
		lines: map[tenant]*line{},
		turns: priority.New(comesFirst, func(l *line) *int { return &l.byTurn }),
		sizes: priority.New(isLonger, func(l *line) *int { return &l.bySize }),
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
		l = &line{tenant: o.tenant, turn: q.nextTurn(), back: priority.New(cameFirst, func(o *op) *int { return &o.index })}
		q.lines[o.tenant] = l
	}
	l.put(o)
	q.count++
	if known {
		q.settle(l)
		return
	}
	q.turns.Push(l)
	q.sizes.Push(l)
}

// next takes out the claim that the next Pod goes to, and counts its tenant's turn; nil when nobody waits.
func (q *waitQueue) next() *op {
	l, ok := q.turns.First()
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
		q.turns.Fix(l)
		q.sizes.Fix(l)
		return
	}
	q.turns.Remove(l)
	q.sizes.Remove(l)
	delete(q.lines, l.tenant)
}

// newest is the claim that came last of the tenant that has most of them in the queue, and how many that are. Claims that are
// back do not count: they keep their place whatever comes.
func (q *waitQueue) newest() (*op, int) {
	l, ok := q.sizes.First()
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
		l.back.Push(o)
	} else {
		o.place = l.fresh.PushBack(o)
	}
}

func (l *line) take(o *op) {
	o.line = nil
	if o.place == nil {
		l.back.Remove(o)
		return
	}
	l.fresh.Remove(o.place)
	o.place = nil
}

func (l *line) front() *op {
	if o, ok := l.back.First(); ok {
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
	if o, ok := l.back.First(); ok {
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
