// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"container/list"

	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/priority"
)

// tenant is the unit of fairness: teams first, then the users of a team. The hub takes the team from credentials. A user counts within the
// team alone, so that invented users gain a team nothing.
type tenant struct{ team, user string }

// waiter is the queue's view of a claim.
type waiter struct {
	tenant   tenant
	image    string        // the image that its Pod preferably runs
	ticket   uint64        // its number in order of arrival
	teamRank uint64        // rank of its team when it got a Pod
	userRank uint64        // rank of its user when it got a Pod
	line     *line         // while it waits
	place    *list.Element // among the claims that had no Pod yet
	index    int           // among the claims that lost one

	callers int  // calls of the hub that wait for its sandbox
	taken   bool // has a Pod, so its queue counts callers as claiming

	handed  chan *inventory.Hold // a Pod for a claim that waits
	refused chan error           // the reason if it gets no Pod
}

func newWaiter(c *Claim, image string) waiter {
	return waiter{
		tenant: tenant{c.Request.GetTeam(), c.Request.GetUser()}, image: image,
		handed: make(chan *inventory.Hold, 1), refused: make(chan error, 1),
	}
}

// waitQueue holds the claims that wait for a Pod. Teams take turns, one Pod each, users take turns within a team, and a user's claims keep
// their order. A claim keeps its ticket and the ranks with which it got a Pod. A claim that lost its Pod to another writer therefore
// returns to its old place, and neither its team nor its user loses a turn.
//
// A tenant that was just served, or is new, goes behind all that wait. Ranks only grow, and the lowest is next. A rank that was given back
// therefore keeps its position, however many claims were served meanwhile. All operations are O(log n).
type waitQueue struct {
	teams  map[string]*team
	ranks  priority.Queue[*team] // the lowest rank first
	sizes  priority.Queue[*team] // the team with the most claims that had no Pod yet first
	count  int
	ticket uint64
	rank   uint64 // the last rank, shared by teams and users
}

// team holds the waiting claims of one team. It exists only while there are any.
type team struct {
	name   string
	lines  map[string]*line      // by user
	ranks  priority.Queue[*line] // the lowest rank first
	sizes  priority.Queue[*line] // the longest first
	fresh  int                   // claims that had no Pod yet
	rank   uint64                // of the first fresh claim
	byRank int
	bySize int
}

// line holds the waiting claims of one user of a team. It exists only while there are any.
type line struct {
	user   string
	fresh  list.List               // of *waiter; had no Pod yet, in order of arrival
	back   priority.Queue[*waiter] // lost their Pod; arrived before all fresh ones
	rank   uint64                  // of the first fresh claim
	byRank int
	bySize int
}

func newWaitQueue() waitQueue {
	return waitQueue{
		teams: map[string]*team{},
		ranks: priority.New(comesFirst[*team], func(t *team) *int { return &t.byRank }),
		sizes: priority.New(isLonger[*team], func(t *team) *int { return &t.bySize }),
	}
}

func (q *waitQueue) newTeam(name string) *team {
	return &team{
		name: name, rank: q.nextRank(), lines: map[string]*line{},
		ranks: priority.New(comesFirst[*line], func(l *line) *int { return &l.byRank }),
		sizes: priority.New(isLonger[*line], func(l *line) *int { return &l.bySize }),
	}
}

func (q *waitQueue) newLine(user string) *line {
	return &line{user: user, rank: q.nextRank(), back: priority.New(cameFirst, func(w *waiter) *int { return &w.index })}
}

func (q *waitQueue) len() int { return q.count }

// keepPlace gives a claim that starts again the place that it had when it got its Pod.
func (w *waiter) keepPlace(before *waiter) {
	w.ticket, w.teamRank, w.userRank = before.ticket, before.teamRank, before.userRank
}

// number assigns a ticket to a claim that has none.
func (q *waitQueue) number(w *waiter) {
	if w.ticket == 0 {
		q.ticket++
		w.ticket = q.ticket
	}
}

// pass assigns ranks to a claim that takes a Pod without waiting, because no claim waits.
func (q *waitQueue) pass(w *waiter) {
	if w.teamRank == 0 {
		w.teamRank, w.userRank = q.nextRank(), q.nextRank()
	}
}

func (q *waitQueue) nextRank() uint64 {
	q.rank++
	return q.rank
}

func (q *waitQueue) add(w *waiter) {
	t, known := q.teams[w.tenant.team]
	if !known {
		t = q.newTeam(w.tenant.team)
		q.teams[t.name] = t
	}
	l, there := t.lines[w.tenant.user]
	if !there {
		l = q.newLine(w.tenant.user)
		t.lines[l.user] = l
	}
	l.put(w)
	q.count++
	if w.teamRank == 0 {
		t.fresh++
	}
	if !there {
		t.ranks.Push(l)
		t.sizes.Push(l)
	}
	if !known {
		q.ranks.Push(t)
		q.sizes.Push(t)
	}
	q.settle(t, l)
}

// next removes and returns the claim that gets the next Pod, and gives its team and user new ranks. It returns nil if no claim waits.
func (q *waitQueue) next() *waiter {
	t, ok := q.ranks.First()
	if !ok {
		return nil
	}
	l, _ := t.ranks.First()
	w := l.front()
	q.take(t, w)
	if w.teamRank == 0 {
		w.teamRank, t.rank = t.rank, q.nextRank()
		w.userRank, l.rank = l.rank, q.nextRank()
	}
	q.settle(t, l)
	return w
}

func (q *waitQueue) take(t *team, w *waiter) {
	w.line.take(w)
	q.count--
	if w.teamRank == 0 {
		t.fresh--
	}
}

// remove removes a claim that gets no Pod, whether it waits or not. Its team and its user keep their ranks.
func (q *waitQueue) remove(w *waiter) {
	t := q.teams[w.tenant.team]
	if t == nil {
		return
	}
	l := t.lines[w.tenant.user]
	if w.line != nil {
		q.take(t, w)
	}
	if w.teamRank != 0 {
		t.rank = min(t.rank, w.teamRank)
		if l != nil {
			l.rank = min(l.rank, w.userRank)
		}
	}
	q.settle(t, l)
}

// settle restores the order after a change of a team, and of one of its lines if given. It drops them if they are empty.
func (q *waitQueue) settle(t *team, l *line) {
	switch {
	case l == nil:
	case l.front() != nil:
		t.ranks.Fix(l)
		t.sizes.Fix(l)
	default:
		t.ranks.Remove(l)
		t.sizes.Remove(l)
		delete(t.lines, l.user)
	}
	if len(t.lines) > 0 {
		q.ranks.Fix(t)
		q.sizes.Fix(t)
		return
	}
	q.ranks.Remove(t)
	q.sizes.Remove(t)
	delete(q.teams, t.name)
}

// crowd returns the claim that would make room for a claim of the given tenant. It is the newest claim of the team with the most claims. If
// the tenant's own team has as many, it is that of the team's user with the most. own and most are the numbers of claims of the two. Claims
// that lost a Pod do not count, because they always keep their place.
func (q *waitQueue) crowd(of tenant) (newest *waiter, own, most int) {
	largest, ok := q.sizes.First()
	if !ok {
		return nil, 0, 0
	}
	mine := q.teams[of.team]
	if mine == nil {
		return largest.last(), 0, largest.fresh
	}
	if mine.fresh+1 < largest.fresh {
		return largest.last(), mine.fresh, largest.fresh
	}
	if l := mine.lines[of.user]; l != nil {
		own = l.fresh.Len()
	}
	longest, _ := mine.sizes.First()
	return longest.last(), own, longest.fresh.Len()
}

func (l *line) put(w *waiter) {
	w.line = l
	if w.teamRank != 0 {
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

// party is a team, or a user of a team.
type party interface {
	due() uint64   // the rank of its first claim
	size() int     // its claims that had no Pod yet
	last() *waiter // the newest of them, which would make room; nil if there is none
}

func comesFirst[P party](a, b P) bool { return a.due() < b.due() }

// isLonger orders parties by size, and among equals puts the party with the newest claim first.
func isLonger[P party](a, b P) bool {
	if n, m := a.size(), b.size(); n != m || n == 0 {
		return n > m
	}
	return a.last().ticket > b.last().ticket
}

func (l *line) due() uint64 {
	if w, ok := l.back.First(); ok {
		return w.userRank
	}
	return l.rank
}

func (l *line) size() int { return l.fresh.Len() }

func (t *team) due() uint64 {
	l, _ := t.ranks.First()
	if w, ok := l.back.First(); ok {
		return w.teamRank
	}
	return t.rank
}

func (t *team) size() int { return t.fresh }

func (t *team) last() *waiter {
	l, _ := t.sizes.First()
	return l.last()
}

// position returns the place of a waiting claim: the number of Pods until it gets one, including its own, if no claim comes or goes. Teams
// take turns, and so do users within a team. It is 0 for a claim that does not wait.
func (q *waitQueue) position(w *waiter) int {
	t, l := q.teams[w.tenant.team], w.line
	if t == nil || l == nil {
		return 0
	}
	before := l.before(w)
	ahead := before
	for _, other := range t.lines {
		if other != l {
			ahead += turns(other.len(), before, comesFirst(other, l))
		}
	}
	all := ahead
	for _, other := range q.teams {
		if other != t {
			all += turns(other.len(), ahead, comesFirst(other, t))
		}
	}
	return all + 1
}

// turns returns how many claims of a party are served before another party's claim that has the given number ahead of it in its own party.
func turns(claims, ahead int, first bool) int {
	if first {
		ahead++
	}
	return min(claims, ahead)
}

func (l *line) len() int { return l.fresh.Len() + l.back.Len() }

func (t *team) len() (n int) {
	for _, l := range t.lines {
		n += l.len()
	}
	return n
}

// before returns the number of claims of the line that are ahead of a claim.
func (l *line) before(w *waiter) (n int) {
	if w.place == nil {
		return w.index // an approximation; few claims lose their Pod
	}
	for at := l.fresh.Front(); at != w.place; at = at.Next() {
		n++
	}
	return n + l.back.Len()
}
