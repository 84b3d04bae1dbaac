// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// play carries out a script and returns what happens. "a1" is claim 1 of team a, "ax1" is claim 1 of its user x:
//
//	+a1  a1 arrives        <a1  a1 lost its Pod and is back
//	-a1  a1 leaves         =a1  a1 takes a Pod without having waited
//	>    the next claim gets a Pod, and is printed
//	!    the newest claim of the user with the most, of the team with the most, is printed with that number, and leaves
func play(script string) string {
	q := newWaitQueue()
	waiters, names := map[string]*waiter{}, map[*waiter]string{}
	var served []string
	for step := range strings.FieldsSeq(script) {
		verb, name := step[:1], step[1:]
		o := waiters[name]
		if name != "" && o == nil {
			o = &waiter{tenant: tenant{team: name[:1], user: name[1 : len(name)-1]}}
			waiters[name], names[o] = o, name
			q.number(o)
		}
		switch verb {
		case "+":
			q.add(o)
		case "<": // as a claim that starts again
			again := &waiter{tenant: o.tenant}
			again.keepPlace(o)
			waiters[name], names[again] = again, name
			q.add(again)
		case "-":
			q.remove(o)
		case "=":
			q.pass(o)
		case ">":
			served = append(served, cmp.Or(names[q.next()], "none"))
		case "!":
			newest, _, most := q.crowd(tenant{team: "none"})
			q.remove(newest)
			served = append(served, fmt.Sprintf("%s/%d", names[newest], most))
		}
	}
	return strings.Join(append(served, fmt.Sprintf("left %d", q.len())), " ")
}

func TestTenantsTakeTurns(t *testing.T) {
	for name, tc := range map[string]struct{ script, want string }{
		"no claims":                             {"> >", "none none left 0"},
		"one tenant is served as it came":       {"+a1 +a2 +a3 > > > >", "a1 a2 a3 none left 0"},
		"tenants take turns":                    {"+a1 +a2 +a3 +b1 +c1 +c2 > > > > > >", "a1 b1 c1 a2 c2 a3 left 0"},
		"a flood is one tenant":                 {"+a1 +a2 +a3 +a4 +a5 > +b1 > > >", "a1 a2 b1 a3 left 2"},
		"who comes is behind who waits":         {"+a1 +a2 +b1 +b2 > +c1 > > > >", "a1 b1 a2 c1 b2 left 0"},
		"who comes again is behind, too":        {"+a1 +b1 +b2 +b3 > +a2 > > >", "a1 b1 a2 b2 left 1"},
		"who leaves is skipped":                 {"+a1 +a2 +b1 -a1 > > >", "a2 b1 none left 0"},
		"who leaves twice, leaves once":         {"+a1 +a2 -a1 -a1 > >", "a2 none left 0"},
		"a tenant that leaves comes anew":       {"+a1 +b1 +b2 -a1 +a2 > > >", "b1 a2 b2 left 0"},
		"back is where it was":                  {"+a1 +a2 +b1 > <a1 > > >", "a1 a1 b1 a2 left 0"},
		"back after the others":                 {"+a1 +a2 +a3 +b1 +b2 +c1 > > > > <a1 > > >", "a1 b1 c1 a2 a1 b2 a3 left 0"},
		"back with none of its own left":        {"+a1 +b1 +b2 +c1 > > <a1 > > >", "a1 b1 a1 c1 b2 left 0"},
		"back before its own, and no turn lost": {"+a1 +a2 +a3 +b1 +b2 +b3 > > > <a1 <a2 > > > > >", "a1 b1 a2 a1 a2 b2 a3 b3 left 0"},
		"back in another order":                 {"+a1 +a2 +a3 +b1 +b2 +b3 > > > <a2 <a1 > > > > >", "a1 b1 a2 a1 a2 b2 a3 b3 left 0"},
		"back over and over":                    {"+a1 +b1 > <a1 > <a1 > <a1 > >", "a1 a1 a1 a1 b1 left 0"},
		"two tenants are back":                  {"+a1 +b1 +c1 +d1 > > > <c1 <b1 <a1 > > > >", "a1 b1 c1 a1 b1 c1 d1 left 0"},
		"back though it had not waited":         {"=a1 +b1 +c1 +a2 <a1 > > > >", "a1 b1 c1 a2 left 0"},
		"back, and leaves: its turn is there":   {"+a1 +a2 +b1 +b2 > > <a1 -a1 > > >", "a1 b1 a2 b2 none left 0"},
		"leaves with its Pod: the turn stays":   {"+a1 +a2 +b1 +b2 > > -a1 > > >", "a1 b1 a2 b2 none left 0"},
		"the newest of the tenant with most":    {"+a1 +a2 +b1 +b2 +b3 +c1 ! ! ! !", "b3/3 b2/2 a2/2 c1/1 left 2"},
		"who is back has its place":             {"+a1 +a2 > > <a1 <a2 +b1 !", "a1 a2 b1/1 left 2"},

		"users of a team take turns":        {"+ax1 +ax2 +ax3 +ay1 +az1 > > > > >", "ax1 ay1 az1 ax2 ax3 left 0"},
		"a team's users share its turns":    {"+ax1 +ay1 +az1 +b1 +b2 +b3 > > > > > >", "ax1 b1 ay1 b2 az1 b3 left 0"},
		"I14: invented users gain nothing":  {"+a1 +ap1 +aq1 +ar1 +as1 +at1 +au1 +b1 +b2 > > > >", "a1 b1 ap1 b2 left 5"},
		"a user who comes is behind":        {"+ax1 +ax2 +b1 > +ay1 > > >", "ax1 b1 ax2 ay1 left 0"},
		"back before the team's others":     {"+ax1 +ay1 +ax2 +b1 +b2 > > <ax1 > > > >", "ax1 b1 ax1 ay1 b2 ax2 left 0"},
		"users back in another order":       {"+ax1 +ay1 +ax2 > > <ay1 <ax1 > > >", "ax1 ay1 ax1 ay1 ax2 left 0"},
		"leaves: team and user are served":  {"+ax1 +ax2 +ay1 +b1 +b2 > -ax1 > > > >", "ax1 ax2 b1 ay1 b2 left 0"},
		"the newest of the team with most":  {"+ax1 +ax2 +ay1 +b1 +b2 ! ! !", "ax2/3 b2/2 ay1/2 left 2"},
		"users of one team displace in it":  {"+ax1 +ax2 +ax3 +ay1 ! !", "ax3/4 ax2/3 left 2"},
		"who is back does not count either": {"+ax1 +ax2 +ay1 > <ax1 +b1 !", "ax1 ay1/2 left 3"},
	} {
		if got := play(tc.script); got != tc.want {
			t.Errorf("%s: %s\n got %s\nwant %s", name, tc.script, got, tc.want)
		}
	}
}

// naive is the queue as the doc comments describe it, without any maintained order.
type naive struct {
	waiting []*waiter
	rank    uint64
	teams   map[string]uint64 // ranks of the first claim that had no Pod yet
	users   map[tenant]uint64
	own     map[*waiter][2]uint64 // of claims that had one: of its team, and of its user
}

func newNaive() *naive {
	return &naive{teams: map[string]uint64{}, users: map[tenant]uint64{}, own: map[*waiter][2]uint64{}}
}

func (n *naive) next1() uint64 {
	n.rank++
	return n.rank
}

func (n *naive) waits(is func(*waiter) bool) bool { return slices.ContainsFunc(n.waiting, is) }

func (n *naive) add(o *waiter) {
	if !n.waits(func(w *waiter) bool { return w.tenant.team == o.tenant.team }) {
		n.teams[o.tenant.team] = n.next1()
	}
	if !n.waits(func(w *waiter) bool { return w.tenant == o.tenant }) {
		n.users[o.tenant] = n.next1()
	}
	n.waiting = append(n.waiting, o)
}

func (n *naive) pass(o *waiter) { n.own[o] = [2]uint64{n.next1(), n.next1()} }

// ofUser returns the oldest claim of a user, and its rank in the team.
func (n *naive) ofUser(of tenant) (first *waiter, rank uint64) {
	for _, o := range n.waiting {
		if o.tenant == of && (first == nil || o.ticket < first.ticket) {
			first = o
		}
	}
	return first, cmp.Or(n.own[first][1], n.users[of])
}

// tenants returns the tenants that wait.
func (n *naive) tenants() map[tenant]bool {
	all := map[tenant]bool{}
	for _, o := range n.waiting {
		all[o.tenant] = true
	}
	return all
}

// next returns the first claim of the user with the lowest rank, of the team with the lowest.
func (n *naive) next() *waiter {
	firsts, orders := map[string]*waiter{}, map[string]uint64{} // by team
	for t := range n.tenants() {
		if w, order := n.ofUser(t); firsts[t.team] == nil || order < orders[t.team] {
			firsts[t.team], orders[t.team] = w, order
		}
	}
	var best *waiter
	var lowest uint64
	for team, first := range firsts {
		if rank := cmp.Or(n.own[first][0], n.teams[team]); best == nil || rank < lowest {
			best, lowest = first, rank
		}
	}
	if best == nil {
		return nil
	}
	n.waiting = slices.DeleteFunc(n.waiting, func(o *waiter) bool { return o == best })
	if n.own[best] == [2]uint64{} {
		n.own[best] = [2]uint64{n.teams[best.tenant.team], n.users[best.tenant]}
		// A party without a claim gets another rank when it returns; numbers are used all the same.
		n.teams[best.tenant.team], n.users[best.tenant] = n.next1(), n.next1()
	}
	return best
}

func (n *naive) remove(o *waiter) {
	n.waiting = slices.DeleteFunc(n.waiting, func(w *waiter) bool { return w == o })
	if own, had := n.own[o]; had {
		n.teams[o.tenant.team] = min(n.teams[o.tenant.team], own[0])
		n.users[o.tenant] = min(n.users[o.tenant], own[1])
	}
}

// crowd compares teams, and where that makes no room the users of the tenant's own.
func (n *naive) crowd(of tenant) (newest *waiter, own, most int) {
	teams, users := map[string][]*waiter{}, map[tenant][]*waiter{}
	for _, o := range n.waiting {
		if _, had := n.own[o]; !had {
			teams[o.tenant.team], users[o.tenant] = append(teams[o.tenant.team], o), append(users[o.tenant], o)
		}
	}
	longest := func(team string) (newest *waiter, most int) {
		for t, line := range users {
			last := slices.MaxFunc(line, func(a, b *waiter) int { return cmp.Compare(a.ticket, b.ticket) })
			if t.team == team && (len(line) > most || len(line) == most && last.ticket > newest.ticket) {
				newest, most = last, len(line)
			}
		}
		return newest, most
	}
	for team, all := range teams {
		last, _ := longest(team)
		if len(all) > most || len(all) == most && last.ticket > newest.ticket {
			newest, most = last, len(all)
		}
	}
	mine := len(teams[of.team])
	if !n.waits(func(w *waiter) bool { return w.tenant.team == of.team }) || mine+1 < most {
		return newest, mine, most
	}
	newest, most = longest(of.team)
	return newest, len(users[of]), most
}

func TestTurnsAreThoseOfTheNaiveQueue(t *testing.T) {
	for seed := range uint64(40) {
		follow(t, rand.New(rand.NewPCG(seed, 1)), 500)
	}
}

// follow does the same at random to both queues.
func follow(t *testing.T, r *rand.Rand, steps int) {
	t.Helper()
	q, n := newWaitQueue(), newNaive()
	teams, users, arrivals := 1+r.IntN(4), 1+r.IntN(4), 1+r.IntN(6)
	anyTenant := func() tenant { // the first of both floods
		return tenant{team: fmt.Sprint(r.IntN(teams) * r.IntN(2)), user: fmt.Sprint(r.IntN(users) * r.IntN(2))}
	}
	var served []*waiter // which may be back
	for step := range steps {
		switch what := r.IntN(10); {
		case what < arrivals:
			o := &waiter{tenant: anyTenant()}
			q.number(o)
			if q.len() == 0 && r.IntN(2) == 0 {
				q.pass(o)
				n.pass(o)
				served = append(served, o)
				break
			}
			q.add(o)
			n.add(o)
		case what < 7:
			got, want := q.next(), n.next()
			if got != want {
				t.Fatalf("step %d: %+v is next, want %+v", step, got, want)
			}
			if got != nil {
				served = append(served, got)
			}
		case what == 7 && len(served) > 0:
			at := r.IntN(len(served))
			o := served[at]
			served = slices.Delete(served, at, at+1)
			if r.IntN(4) == 0 { // it left as it got its Pod
				q.remove(o)
				n.remove(o)
				break
			}
			q.add(o)
			n.add(o)
		case what == 8 && len(n.waiting) > 0:
			o := n.waiting[r.IntN(len(n.waiting))]
			q.remove(o)
			n.remove(o)
		}
		who := anyTenant()
		got, own, most := q.crowd(who)
		want, ownWanted, mostWanted := n.crowd(who)
		if got != want || own != ownWanted || most != mostWanted || q.len() != len(n.waiting) {
			t.Fatalf("step %d: newest %+v, %d, %d of %d, want %+v, %d, %d of %d", step, got, own, most, q.len(), want, ownWanted, mostWanted,
				len(n.waiting))
		}
	}
	for q.len() > 0 {
		if got, want := q.next(), n.next(); got != want {
			t.Fatalf("at the end %+v is next, want %+v", got, want)
		}
	}
	if len(q.teams)+q.ranks.Len()+q.sizes.Len() != 0 {
		t.Fatalf("an empty queue keeps %d teams, %d ranks, %d sizes", len(q.teams), q.ranks.Len(), q.sizes.Len())
	}
}

// parties are the units of fairness: the users of a team, teams, and teams whose every claim has a user of its own (I14).
func parties() map[string]func(i int) tenant {
	invented := 0
	return map[string]func(i int) tenant{
		"users": func(i int) tenant { return tenant{user: fmt.Sprint(i)} },
		"teams": func(i int) tenant { return tenant{team: fmt.Sprint(i)} },
		"teams of invented users": func(i int) tenant {
			invented++
			return tenant{team: fmt.Sprint(i), user: fmt.Sprint(invented)}
		},
	}
}

func indexOf(t tenant) int {
	if t.team == "" {
		return int(t.user[0] - '0')
	}
	return int(t.team[0] - '0')
}

// Of parties that always have claims waiting, none gets two Pods more than another.
func TestTurnsAreFair(t *testing.T) {
	for name, party := range parties() {
		r := rand.New(rand.NewPCG(7, 7))
		q := newWaitQueue()
		const count = 7
		var waiting, got [count]int
		add := func(i int) {
			o := &waiter{tenant: party(i)}
			q.number(o)
			q.add(o)
			waiting[i]++
		}
		for i := range count {
			for range 1 + r.IntN(500) {
				add(i)
			}
		}
		for range 10_000 {
			i := indexOf(q.next().tenant)
			got[i]++
			if waiting[i]--; waiting[i] == 0 {
				add(i)
			}
			if least, most := slices.Min(got[:]), slices.Max(got[:]); most-least > 1 {
				t.Fatalf("%s: one has %d Pods, another %d", name, most, least)
			}
		}
	}
}

// A flood that takes every place gets no more than an equal share.
func TestDisplacingEvensOut(t *testing.T) {
	for name, party := range parties() {
		const capacity = 64
		q := newWaitQueue()
		var places [9]int
		ask := func(i int) admission {
			o := &waiter{tenant: party(i)}
			newest, own, most := q.crowd(o.tenant)
			got := admit(&asking{left: 1, waiting: q.len(), capacity: capacity, own: own, most: most})
			if got == displaces {
				q.remove(newest)
				places[indexOf(newest.tenant)]--
			}
			if got == displaces || got == waits {
				q.number(o)
				q.add(o)
				places[i]++
			}
			return got
		}
		for range 2 * capacity {
			ask(0)
		}
		for range 4 * capacity {
			for i := range 4 {
				ask(i)
			}
		}
		if got := fmt.Sprint(places[:4]); got != fmt.Sprint([]int{capacity / 4, capacity / 4, capacity / 4, capacity / 4}) {
			t.Errorf("%s have %s places", name, got)
		}
		if got := ask(8); got != displaces {
			t.Errorf("%s: the one that comes last: %s", name, got)
		}
		if q.len() != capacity {
			t.Errorf("%s: %d wait, want %d", name, q.len(), capacity)
		}
	}
}

// BenchmarkQueue compares a decision among 8192 that wait with one among 64, in turns.
func BenchmarkQueue(b *testing.B) {
	queueOf := func(waiting int) *waitQueue {
		q := newWaitQueue()
		for i := range waiting {
			o := &waiter{tenant: tenant{user: fmt.Sprint(i % 100)}}
			q.number(o)
			q.add(o)
		}
		return &q
	}
	few, many := queueOf(64), queueOf(8192)
	decide := func(q *waitQueue) time.Duration {
		const n = 1000
		began := time.Now()
		for range n {
			o := q.next()
			o.ticket, o.teamRank = 0, 0
			q.number(o)
			q.add(o)
		}
		return time.Since(began) / n
	}
	var ofFew, ofMany time.Duration
	rounds := 0
	for b.Loop() {
		ofFew += decide(few)
		ofMany += decide(many)
		rounds++
	}
	b.ReportMetric(float64(ofFew)/float64(rounds), "few-ns")
	b.ReportMetric(float64(ofMany)/float64(rounds), "many-ns")
	b.ReportMetric(float64(ofMany)/float64(ofFew), "many/few")
}

// A claim's position says which of the next Pods it gets, if no claim comes or goes.
func TestPositions(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		q := newWaitQueue()
		var waiting []*waiter
		for range rnd.IntN(30) {
			w := &waiter{tenant: tenant{team: string("abc"[rnd.IntN(3)]), user: string("xyz"[rnd.IntN(3)])}}
			q.number(w)
			q.add(w)
			waiting = append(waiting, w)
			if rnd.IntN(5) == 0 {
				served := q.next()
				waiting = slices.DeleteFunc(waiting, func(w *waiter) bool { return w == served })
				if q.position(served) != 0 {
					t.Fatal("a claim that was served has a position")
				}
			}
		}
		want := map[*waiter]int{}
		for _, w := range waiting {
			want[w] = q.position(w)
		}
		for n := 1; q.len() > 0; n++ {
			if w := q.next(); want[w] != n {
				t.Fatalf("round %d: the claim at position %d is served as number %d", round, want[w], n)
			}
		}
	}
}
