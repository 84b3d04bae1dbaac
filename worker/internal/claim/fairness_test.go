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

// play carries out a script and answers what it tells. "a1" is claim 1 of tenant a:
//
//	+a1  a1 comes          <a1  a1 lost its Pod and is back
//	-a1  a1 leaves         =a1  a1 takes a Pod without having waited
//	>    the next one gets a Pod, and is told
//	!    the newest of whoever has most is told, and leaves
func play(script string) string {
	q := newWaitQueue()
	waiters, names := map[string]*waiter{}, map[*waiter]string{}
	var told []string
	for step := range strings.FieldsSeq(script) {
		verb, name := step[:1], step[1:]
		o := waiters[name]
		if name != "" && o == nil {
			o = &waiter{tenant: tenant{team: name[:1]}}
			waiters[name], names[o] = o, name
			q.number(o)
		}
		switch verb {
		case "+", "<":
			q.add(o)
		case "-":
			q.remove(o)
		case "=":
			q.pass(o)
		case ">":
			told = append(told, cmp.Or(names[q.next()], "none"))
		case "!":
			newest, most := q.newest()
			q.remove(newest)
			told = append(told, fmt.Sprintf("%s/%d", names[newest], most))
		}
	}
	return strings.Join(append(told, fmt.Sprintf("left %d", q.len())), " ")
}

func TestTenantsTakeTurns(t *testing.T) {
	for name, tc := range map[string]struct{ script, want string }{
		"nobody":                                {"> >", "none none left 0"},
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
		"back with nobody of its own left":      {"+a1 +b1 +b2 +c1 > > <a1 > > >", "a1 b1 a1 c1 b2 left 0"},
		"back before its own, and no turn lost": {"+a1 +a2 +a3 +b1 +b2 +b3 > > > <a1 <a2 > > > > >", "a1 b1 a2 a1 a2 b2 a3 b3 left 0"},
		"back in another order":                 {"+a1 +a2 +a3 +b1 +b2 +b3 > > > <a2 <a1 > > > > >", "a1 b1 a2 a1 a2 b2 a3 b3 left 0"},
		"back over and over":                    {"+a1 +b1 > <a1 > <a1 > <a1 > >", "a1 a1 a1 a1 b1 left 0"},
		"two tenants are back":                  {"+a1 +b1 +c1 +d1 > > > <c1 <b1 <a1 > > > >", "a1 b1 c1 a1 b1 c1 d1 left 0"},
		"back though it had not waited":         {"=a1 +b1 +c1 +a2 <a1 > > > >", "a1 b1 c1 a2 left 0"},
		"back, and leaves: its turn is there":   {"+a1 +a2 +b1 +b2 > > <a1 -a1 > > >", "a1 b1 a2 b2 none left 0"},
		"leaves with its Pod: the turn stays":   {"+a1 +a2 +b1 +b2 > > -a1 > > >", "a1 b1 a2 b2 none left 0"},
		"the newest of whoever has most":        {"+a1 +a2 +b1 +b2 +b3 +c1 ! ! ! !", "b3/3 b2/2 a2/2 c1/1 left 2"},
		"who is back has its place":             {"+a1 +a2 > > <a1 <a2 +b1 !", "a1 a2 b1/1 left 2"},
	} {
		if got := play(tc.script); got != tc.want {
			t.Errorf("%s: %s\n got %s\nwant %s", name, tc.script, got, tc.want)
		}
	}
}

// naive is the queue as doc comments say it, without any order that has to be kept.
type naive struct {
	waiting []*waiter
	turn    uint64
	turns   map[tenant]uint64  // of the first claim that had no Pod yet
	own     map[*waiter]uint64 // of claims that had one
}

func (n *naive) add(o *waiter) {
	if !slices.ContainsFunc(n.waiting, func(w *waiter) bool { return w.tenant == o.tenant }) {
		n.turn++
		n.turns[o.tenant] = n.turn
	}
	n.waiting = append(n.waiting, o)
}

func (n *naive) pass(o *waiter) {
	n.turn++
	n.own[o] = n.turn
}

// first is the oldest claim of a tenant, and its turn.
func (n *naive) first(of tenant) (first *waiter, turn uint64) {
	for _, o := range n.waiting {
		if o.tenant == of && (first == nil || o.ticket < first.ticket) {
			first = o
		}
	}
	return first, cmp.Or(n.own[first], n.turns[of])
}

func (n *naive) next() *waiter {
	var best *waiter
	var bestTurn uint64
	for _, o := range n.waiting {
		if first, turn := n.first(o.tenant); best == nil || turn < bestTurn {
			best, bestTurn = first, turn
		}
	}
	if best == nil {
		return nil
	}
	n.waiting = slices.DeleteFunc(n.waiting, func(o *waiter) bool { return o == best })
	if n.own[best] == 0 {
		n.own[best] = bestTurn
		// A tenant of whom nobody is left gets another turn when it comes again; numbers are spent all the same.
		n.turn++
		n.turns[best.tenant] = n.turn
	}
	return best
}

func (n *naive) remove(o *waiter) {
	n.waiting = slices.DeleteFunc(n.waiting, func(w *waiter) bool { return w == o })
	if own := n.own[o]; own != 0 {
		n.turns[o.tenant] = min(n.turns[o.tenant], own)
	}
}

func (n *naive) newest() (newest *waiter, most int) {
	lines := map[tenant][]*waiter{}
	for _, o := range n.waiting {
		if n.own[o] == 0 {
			lines[o.tenant] = append(lines[o.tenant], o)
		}
	}
	for _, line := range lines {
		last := slices.MaxFunc(line, func(a, b *waiter) int { return cmp.Compare(a.ticket, b.ticket) })
		if len(line) > most || len(line) == most && last.ticket > newest.ticket {
			newest, most = last, len(line)
		}
	}
	return newest, most
}

func TestTurnsAreThoseOfTheNaiveQueue(t *testing.T) {
	for seed := range uint64(40) {
		follow(t, rand.New(rand.NewPCG(seed, 1)), 500)
	}
}

// follow does the same at random to both queues.
func follow(t *testing.T, r *rand.Rand, steps int) {
	t.Helper()
	q, n := newWaitQueue(), &naive{turns: map[tenant]uint64{}, own: map[*waiter]uint64{}}
	tenants, arrivals := 1+r.IntN(9), 1+r.IntN(6)
	var served []*waiter // which may be back
	for step := range steps {
		switch what := r.IntN(10); {
		case what < arrivals:
			// The first tenant floods.
			o := &waiter{tenant: tenant{user: fmt.Sprint(r.IntN(tenants) * r.IntN(2))}}
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
		got, most := q.newest()
		want, mostWanted := n.newest()
		if got != want || most != mostWanted || q.len() != len(n.waiting) {
			t.Fatalf("step %d: newest %+v of %d of %d, want %+v of %d of %d", step, got, most, q.len(), want, mostWanted, len(n.waiting))
		}
	}
	for q.len() > 0 {
		if got, want := q.next(), n.next(); got != want {
			t.Fatalf("at the end %+v is next, want %+v", got, want)
		}
	}
	if len(q.lines)+q.ranks.Len()+q.sizes.Len() != 0 {
		t.Fatalf("an empty queue keeps %d lines, %d ranks, %d sizes", len(q.lines), q.ranks.Len(), q.sizes.Len())
	}
}

// Of tenants that have claims waiting all the while, none gets two Pods more than another.
func TestTurnsAreFair(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	q := newWaitQueue()
	add := func(i int) {
		o := &waiter{tenant: tenant{user: fmt.Sprint(i)}}
		q.number(o)
		q.add(o)
	}
	const tenants = 7
	for i := range tenants {
		for range 1 + r.IntN(500) {
			add(i)
		}
	}
	got := map[tenant]int{}
	for range 10_000 {
		o := q.next()
		got[o.tenant]++
		if q.of(o.tenant) == 0 {
			add(int(o.tenant.user[0] - '0'))
		}
		least, most := 10_000, 0
		for i := range tenants {
			n := got[tenant{user: fmt.Sprint(i)}]
			least, most = min(least, n), max(most, n)
		}
		if most-least > 1 {
			t.Fatalf("one tenant has %d Pods, another %d", most, least)
		}
	}
}

// A flood that takes every place is worth no more than the same part for everybody else.
func TestDisplacingEvensOut(t *testing.T) {
	const capacity = 64
	q := newWaitQueue()
	ask := func(user string) admission {
		o := &waiter{tenant: tenant{user: user}}
		newest, most := q.newest()
		got := admit(&asking{left: 1, waiting: q.len(), capacity: capacity, own: q.of(o.tenant), most: most})
		if got == displaces {
			q.remove(newest)
		}
		if got == displaces || got == waits {
			q.number(o)
			q.add(o)
		}
		return got
	}
	for range 2 * capacity {
		ask("flood")
	}
	for range 4 * capacity {
		for _, user := range []string{"a", "b", "flood", "c"} {
			ask(user)
		}
	}
	for _, user := range []string{"a", "b", "c", "flood"} {
		if n := q.of(tenant{user: user}); n != capacity/4 {
			t.Errorf("%s has %d places, want %d", user, n, capacity/4)
		}
	}
	if got := ask("single"); got != displaces {
		t.Errorf("whoever comes last: %s", got)
	}
	if q.len() != capacity {
		t.Errorf("%d wait, want %d", q.len(), capacity)
	}
}

// BenchmarkHandOver is one decision: a Pod goes to whose turn it is, and another claim takes the place in the queue.
func BenchmarkHandOver(b *testing.B) {
	for _, waiting := range []int{1, 64, 1024, 8192} {
		for _, tenants := range slices.Compact([]int{1, min(100, waiting), waiting}) {
			b.Run(fmt.Sprintf("waiting=%d/tenants=%d", waiting, tenants), func(b *testing.B) {
				q := newWaitQueue()
				for i := range waiting {
					o := &waiter{tenant: tenant{user: fmt.Sprint(i % tenants)}}
					q.number(o)
					q.add(o)
				}
				b.ReportAllocs()
				for b.Loop() {
					o := q.next()
					o.ticket, o.rank = 0, 0
					q.number(o)
					q.add(o)
				}
			})
		}
	}
}

// BenchmarkComeBack is a claim that loses its Pod among many that wait.
func BenchmarkComeBack(b *testing.B) {
	for _, waiting := range []int{1, 64, 1024, 8192} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			q := newWaitQueue()
			for i := range waiting {
				o := &waiter{tenant: tenant{user: fmt.Sprint(i % 100)}}
				q.number(o)
				q.add(o)
			}
			b.ReportAllocs()
			for b.Loop() {
				q.add(q.next())
			}
		})
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
			o.ticket, o.rank = 0, 0
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
