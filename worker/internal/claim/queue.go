// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"cmp"
	"container/list"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/priority"
	"navix.sh/atoll/worker/internal/sandbox"
)

// tenant is whom the queue is fair to. It is as trustworthy as the team and user of a request: the hub takes them from
// credentials.
type tenant struct{ team, user string }

// waiter is a claim as far as the queue is concerned.
type waiter struct {
	tenant tenant
	image  string        // that its Pod should run
	ticket uint64        // of its coming
	rank   uint64        // with which it got a Pod
	line   *line         // while it waits
	place  *list.Element // among those that had no Pod yet
	index  int           // among the others

	handed  chan *inventory.Hold // a Pod for a claim that waits
	refused chan error           // why it waits in vain
}

func newWaiter(c *Claim, spec *v1alpha1.SandboxPoolSpec) waiter {
	return waiter{
		tenant: tenant{c.Request.GetTeam(), c.Request.GetUser()}, image: cmp.Or(c.Request.GetImage(), sandbox.DefaultImage(spec)),
		handed: make(chan *inventory.Hold, 1), refused: make(chan error, 1),
	}
}

// waitQueue holds the claims that wait for a Pod. Tenants take turns, one Pod each, and a tenant's claims go in the order in
// which they came. A claim keeps the ticket of its coming and the rank with which it got a Pod: one that lost the Pod to another
// writer comes back with both, so to its old place, and its tenant has lost no turn.
//
// Whoever has just been served, and whoever is new, goes behind all that wait. A rank is a number that only grows, and the lowest
// is next: so a rank that was given back is where it was, however many were served meanwhile. All of it is O(log n).
type waitQueue struct {
	lines  map[tenant]*line
	ranks  priority.Queue[*line] // the lowest rank first
	sizes  priority.Queue[*line] // the longest first
	count  int
	ticket uint64
	rank   uint64
}

// line is where the claims of one tenant wait. There is none without a claim in it.
type line struct {
	tenant tenant
	fresh  list.List               // of *waiter, that had no Pod yet, in the order in which they came
	back   priority.Queue[*waiter] // that had one and lost it: they came before all that are fresh
	rank   uint64                  // of the first fresh one
	byRank int
	bySize int
}

func newWaitQueue() waitQueue {
	return waitQueue{
		lines: map[tenant]*line{},
		ranks: priority.New(comesFirst, func(l *line) *int { return &l.byRank }),
		sizes: priority.New(isLonger, func(l *line) *int { return &l.bySize }),
	}
}

func (q *waitQueue) len() int { return q.count }

// number gives a claim its ticket, once.
func (q *waitQueue) number(w *waiter) {
	if w.ticket == 0 {
		q.ticket++
		w.ticket = q.ticket
	}
}

// pass ranks a claim that takes a Pod without having waited, because no claim waits.
func (q *waitQueue) pass(w *waiter) {
	if w.rank == 0 {
		w.rank = q.nextRank()
	}
}

func (q *waitQueue) nextRank() uint64 {
	q.rank++
	return q.rank
}

func (q *waitQueue) add(w *waiter) {
	l, known := q.lines[w.tenant]
	if !known {
		l = &line{tenant: w.tenant, rank: q.nextRank(), back: priority.New(cameFirst, func(w *waiter) *int { return &w.index })}
		q.lines[w.tenant] = l
	}
	l.put(w)
	q.count++
	if known {
		q.settle(l)
		return
	}
	q.ranks.Push(l)
	q.sizes.Push(l)
}

// next takes out the claim that the next Pod goes to, and ranks its tenant anew; nil when no claim waits.
func (q *waitQueue) next() *waiter {
	l, ok := q.ranks.First()
	if !ok {
		return nil
	}
	w := l.front()
	l.take(w)
	if w.rank == 0 {
		w.rank, l.rank = l.rank, q.nextRank()
	}
	q.count--
	q.settle(l)
	return w
}

// remove takes out a claim that gets no Pod, wherever it is. A rank that it had is its tenant's still.
func (q *waitQueue) remove(w *waiter) {
	l := w.line
	if l != nil {
		l.take(w)
		q.count--
	} else if l = q.lines[w.tenant]; l == nil {
		return
	}
	if w.rank != 0 {
		l.rank = min(l.rank, w.rank)
	}
	q.settle(l)
}

// settle finds a line its place anew, or drops it.
func (q *waitQueue) settle(l *line) {
	if l.front() != nil {
		q.ranks.Fix(l)
		q.sizes.Fix(l)
		return
	}
	q.ranks.Remove(l)
	q.sizes.Remove(l)
	delete(q.lines, l.tenant)
}

// newest is the claim that came last of the tenant that has most of them in the queue, and how many that are. Claims that are
// back do not count: they keep their place whatever comes.
func (q *waitQueue) newest() (*waiter, int) {
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

func (l *line) put(w *waiter) {
	w.line = l
	if w.rank != 0 {
		l.back.Push(w)
	} else {
		w.place = l.fresh.PushBack(w)
	}
}

func (l *line) take(w *waiter) {
	w.line = nil
	if w.place == nil {
		l.back.Remove(w)
		return
	}
	l.fresh.Remove(w.place)
	w.place = nil
}

func (l *line) front() *waiter {
	if w, ok := l.back.First(); ok {
		return w
	}
	return waiterAt(l.fresh.Front())
}

func (l *line) last() *waiter { return waiterAt(l.fresh.Back()) }

func waiterAt(at *list.Element) *waiter {
	if at == nil {
		return nil
	}
	w, _ := at.Value.(*waiter)
	return w
}

func cameFirst(a, b *waiter) bool { return a.ticket < b.ticket }

func comesFirst(a, b *line) bool { return a.due() < b.due() }

// due is the rank of the line's first claim.
func (l *line) due() uint64 {
	if w, ok := l.back.First(); ok {
		return w.rank
	}
	return l.rank
}

// isLonger puts the line with the newest claim first among equals.
func isLonger(a, b *line) bool {
	if n, m := a.fresh.Len(), b.fresh.Len(); n != m || n == 0 {
		return n > m
	}
	return a.last().ticket > b.last().ticket
}
