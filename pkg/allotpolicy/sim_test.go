// SPDX-License-Identifier: Apache-2.0

package allotpolicy_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/pkg/allotpolicy"
)

var seeds = flag.Int("seeds", 10_000, "how many seeds TestI9Simulated runs")

var key = allotpolicy.Key{Namespace: "agents", Env: "python", Group: "default"}

const steps = 300

// TestI9Simulated: whatever happens, what clusters hold exceeds maxReplicas only by what was held when one joined, or it was lowered. Once
// all heals, demand gets all there is; and while a cluster is lost, the others keep minReplicas within their rooms.
func TestI9Simulated(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = 500
	}
	grown, moved := 0, 0
	for seed := range n {
		w := newWorld(uint64(seed), seed%2 == 0)
		for range steps {
			w.step()
		}
		w.heal()
		if seed%3 == 0 {
			w.lose()
		}
		grown, moved = grown+w.grown, moved+w.lowered
		if len(w.faults) > 0 {
			t.Fatalf("seed %d: %s\n%s", seed, strings.Join(w.faults, "\n"), strings.Join(w.trace, "\n"))
		}
	}
	if grown < 4*n || moved < n {
		t.Errorf("%d seeds grew %d times and took room back %d times: the simulation shows too little", n, grown, moved)
	}
}

// world is a hub's store, two processes that may lead, and clusters.
type world struct {
	*rand.Rand
	strict bool // no cluster joins with Pods, maxReplicas stays, and nothing is reclaimed
	now    time.Time
	limit  int32 // of maxReplicas: what users apply now
	least  int32 // minReplicas

	epoch     uint64
	records   map[allotpolicy.Key]allotpolicy.Record
	addressed map[string]uint64
	uids      map[string]string // registered

	leaders  []*leader
	clusters []*cluster
	calls    []call
	answers  []answer

	// allowed is what the sum may be: maxReplicas, or more for what was held when it was lowered or a cluster joined.
	allowed        int64
	grown, lowered int
	faults, trace  []string
}

type leader struct {
	*allotpolicy.Division
	waits map[string]allotpolicy.Call
}

type call struct {
	leader  int
	cluster string
	allotpolicy.Call
}

type answer struct {
	leader  int
	cluster string
	number  uint64
	allotpolicy.Reply
}

type cluster struct {
	id, uid     string
	incarnation uint64
	*allotpolicy.Holder
	max, held, ending, demand int32
	least                     int32
	decided, writing          int32 // a growth that was decided, and one under way; 0: none
	away, gone, reclaimed     bool
	lost                      bool // the hub says so, rightly or not
}

func newWorld(seed uint64, strict bool) *world {
	w := &world{
		Rand: rand.New(rand.NewPCG(seed, 9)), strict: strict, now: time.Unix(0, 0), limit: 6, allowed: 6,
		least:   int32(seed % 7),
		records: map[allotpolicy.Key]allotpolicy.Record{}, addressed: map[string]uint64{}, uids: map[string]string{},
	}
	for i := range 2 + w.IntN(2) {
		c := &cluster{id: string(rune('a' + i)), max: w.limit, least: w.least}
		c.uid = "uid-" + c.id
		w.clusters = append(w.clusters, c)
		if !strict && w.IntN(3) == 0 {
			c.held = w.Int32N(5)
			w.allowed += int64(c.held)
		}
		w.restart(c)
		w.uids[c.id] = c.uid
	}
	w.leaders = make([]*leader, 2)
	w.takeOver(0)
	return w
}

func (w *world) restart(c *cluster) {
	if c.writing > 0 && w.IntN(2) == 0 {
		c.held = c.writing
	}
	c.decided, c.writing = 0, 0
	c.incarnation++
	c.Holder = allotpolicy.NewHolder()
	c.Switch(true)
	c.Begin(c.incarnation)
	c.observe(w.now)
}

func (c *cluster) observe(now time.Time) {
	if c.gone {
		c.Keep(key.Namespace, key.Env, func(string) bool { return false })
		return
	}
	c.Observe(key, allotpolicy.Observation{Ending: c.ending,
		Holding: allotpolicy.Holding{Present: true, Max: c.max, Min: c.floor(nil), Held: c.held}}, now)
	demand := c.demand
	if c.Floor(key) == nil {
		demand = max(demand, c.floor(nil))
	}
	c.Need(key, demand)
}

// floor is what a worker keeps of its minReplicas.
func (c *cluster) floor(told *int32) int32 {
	least := min(c.least, c.max)
	if told != nil {
		return min(*told, least)
	}
	return least
}

func (w *world) takeOver(i int) {
	w.epoch++
	d := allotpolicy.NewDivision(w.epoch, w.records, w.addressed)
	d.Warm = true
	d.Lost = func(id string) bool { return w.find(id).lost }
	w.leaders[i] = &leader{Division: d, waits: map[string]allotpolicy.Call{}}
}

// commit stores a change, unless another process leads.
func (w *world) commit(l *leader, c allotpolicy.Change) bool {
	if l.Epoch != w.epoch {
		return false
	}
	for k, r := range c.Records {
		before := w.records[k]
		w.check(before, r)
		if r.Empty() {
			delete(w.records, k)
		} else {
			w.records[k] = r
		}
	}
	maps.Copy(w.addressed, c.Addressed)
	l.Apply(c)
	return true
}

// check looks at a change of a group's record. A room rises only while the sum fits.
func (w *world) check(before, after allotpolicy.Record) {
	_, most := after.Sums()
	for id, s := range after.Shares {
		if s.Room < before.Shares[id].Room {
			w.lowered++
		}
		if s.Room > before.Shares[id].Room && most > int64(after.Max) {
			w.fault("%s's room rises to %d while %d may be held of %d", id, s.Room, most, after.Max)
		}
		if s.Most < s.Room {
			w.fault("%s may hold %d, less than its room %d", id, s.Most, s.Room)
		}
		if s.Floor > s.Room {
			w.fault("%s keeps %d, more than its room %d", id, s.Floor, s.Room)
		}
	}
	if keeps := kept(after); keeps > after.Min || after.Min > after.Max {
		w.fault("the clusters that are not replaced keep %d of %d, and maxReplicas is %d", keeps, after.Min, after.Max)
	}
}

// kept is what those clusters keep that are not replaced.
func kept(r allotpolicy.Record) (sum int32) {
	for _, s := range r.Shares {
		if !s.Replaced {
			sum += s.Floor
		}
	}
	return sum
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *world) log(format string, args ...any) {
	if len(w.trace) < 10*steps {
		w.trace = append(w.trace, fmt.Sprintf(format, args...))
	}
}

func (w *world) find(id string) *cluster {
	return w.clusters[slices.IndexFunc(w.clusters, func(c *cluster) bool { return c.id == id })]
}

// sum counts what all clusters hold, without those that an operator declared gone.
func (w *world) sum() (n int64) {
	for _, c := range w.clusters {
		if !c.reclaimed {
			n += int64(c.held)
		}
	}
	return n
}

// step does one thing at random.
func (w *world) step() {
	w.now = w.now.Add(time.Second)
	c := w.clusters[w.IntN(len(w.clusters))]
	switch n := w.IntN(100); {
	case n < 22:
		w.ask(w.IntN(2), c)
	case n < 56:
		w.deliver()
	case n < 84:
		w.scale(c)
	case n < 88:
		c.demand = w.Int32N(9)
	case n < 91:
		if c.held > 0 { // a Pod's end begins
			c.held--
			c.ending++
		}
	case n < 92:
		c.ending = 0
	case n < 93:
		if c.gone = !c.gone && c.writing == 0 && w.IntN(3) == 0; c.gone { // its Env is removed, or comes back
			c.decided, c.held, c.ending = 0, 0, 0
			c.observe(w.now)
		}
	case n < 95:
		w.restart(c)
		w.log("%s restarts as %d", c.id, c.incarnation)
	case n < 96:
		c.away = !c.away && w.IntN(3) == 0
		c.lost = c.away != (w.IntN(9) == 0)
	case n < 97:
		w.takeOver(w.IntN(2))
	case n < 99:
		w.operate(c)
	default:
		w.specify(c)
	}
	w.settleAllowed()
}

// settleAllowed takes the allowance back once the hub knows that the sum fits.
func (w *world) settleAllowed() {
	r := w.records[key]
	_, most := r.Sums()
	joined := !slices.ContainsFunc(w.clusters, func(c *cluster) bool {
		_, has := r.Shares[c.id]
		return !has && max(c.held, c.decided, c.writing, *c.Room(key)) > 0 && !c.reclaimed || c.max != w.limit && !c.reclaimed
	})
	for _, a := range w.answers {
		for _, said := range a.Holdings {
			joined = joined && said.Max == w.limit
		}
	}
	for _, l := range w.leaders {
		if l == nil || l.Epoch != w.epoch {
			continue
		}
		for _, c := range w.clusters {
			said, answers := l.Said(c.id, key)
			joined = joined && (!answers || !said.Present || said.Max == w.limit) // else it does not know yet what users applied
		}
	}
	if most <= int64(w.limit) && joined && w.sum() <= int64(w.limit) && !w.strict && r.Max == w.limit {
		w.allowed = int64(w.limit)
	}
}

// ask has a leader send a call, if the last one was answered or is given up.
func (w *world) ask(i int, c *cluster) {
	l := w.leaders[i]
	if l == nil || w.uids[c.id] == "" {
		return
	}
	if _, waits := l.waits[c.id]; waits {
		if w.IntN(8) > 0 {
			return
		}
		delete(l.waits, c.id)
		l.Away(c.id)
	}
	if change := l.Address(c.id, c.incarnation); !change.None() && !w.commit(l, change) {
		return
	}
	sent := l.Call(c.id)
	l.waits[c.id] = sent
	w.calls = append(w.calls, call{i, c.id, sent})
}

// deliver delivers, loses or repeats one message, of any age.
func (w *world) deliver() {
	lost, again := w.IntN(20) == 0, w.IntN(10) == 0
	if w.IntN(2) == 0 && len(w.calls) > 0 {
		at := max(w.IntN(len(w.calls)), w.IntN(len(w.calls)))
		m := w.calls[at]
		if !again {
			w.calls = slices.Delete(w.calls, at, at+1)
		}
		c := w.find(m.cluster)
		if lost || c.away {
			return
		}
		if a, _, err := c.Take(m.Call); err == nil {
			w.answers = append(w.answers, answer{m.leader, m.cluster, m.Number, a})
		}
		return
	}
	if len(w.answers) == 0 {
		return
	}
	at := max(w.IntN(len(w.answers)), w.IntN(len(w.answers)))
	m := w.answers[at]
	if !again {
		w.answers = slices.Delete(w.answers, at, at+1)
	}
	l := w.leaders[m.leader]
	sent, waits := l.waits[m.cluster]
	if lost || !waits || sent.Number != m.number || sent.Epoch != l.Epoch || w.uids[m.cluster] == "" {
		return
	}
	delete(l.waits, m.cluster)
	if change := l.Answered(m.cluster, w.find(m.cluster).uid, sent, m.Reply); !change.None() && w.commit(l, change) {
		w.log("%s holds %v of %v: %v", m.cluster, m.Holdings, sent.Rooms, w.records[key])
	}
}

// scale is one decision of a worker's autoscaler, or the end of its write.
func (w *world) scale(c *cluster) {
	if c.writing > 0 {
		c.held, c.writing = c.writing, 0
		w.grown++
		w.log("%s grows to %d of %d", c.id, c.held, *c.Room(key))
		if sum := w.sum(); sum > w.allowed && !c.reclaimed {
			w.fault("%s grew to %d, and all hold %d of %d", c.id, c.held, sum, w.allowed)
		}
		return
	}
	if c.decided > 0 {
		if c.Promise(key, c.decided) {
			c.writing = c.decided
		}
		c.decided = 0
		return
	}
	c.observe(w.now)
	if c.gone {
		return
	}
	want := max(c.demand, c.floor(c.Floor(key)))
	to := min(want, c.max, *c.Room(key), c.held+1+w.Int32N(3))
	switch {
	case to > c.held:
		c.decided = to
	case c.held > want:
		c.held, c.ending = c.held-1, c.ending+1
	}
}

// operate forgets a cluster, takes it back, or reclaims what it had.
func (w *world) operate(c *cluster) {
	registered := maps.Clone(w.uids)
	maps.DeleteFunc(registered, func(_, uid string) bool { return uid == "" })
	var reclaimed []string
	switch {
	case w.uids[c.id] != "":
		if w.IntN(3) > 0 {
			return
		}
		w.uids[c.id] = ""
		delete(registered, c.id)
	case w.strict || w.IntN(3) > 0:
		if c.reclaimed { // what it holds counts again
			w.allowed = max(w.allowed, int64(c.max)) + int64(max(c.held, c.decided, c.writing, *c.Room(key)))
			c.reclaimed = false
		}
		w.uids[c.id], registered[c.id] = c.uid, c.uid
	default:
		// The operator says that the cluster is gone.
		c.reclaimed, reclaimed = true, []string{c.id}
	}
	w.log("registered are %v, reclaimed %v", registered, reclaimed)
	for i := range w.leaders {
		l := w.leaders[i]
		if l == nil || l.Epoch != w.epoch {
			continue
		}
		for id := range w.uids {
			if registered[id] == "" {
				l.Away(id)
				delete(l.waits, id)
			}
		}
		if change := l.Settle(registered, reclaimed, true); !change.None() {
			w.commit(l, change)
		}
	}
}

// specify applies another maxReplicas, in one cluster after the other.
func (w *world) specify(c *cluster) {
	if w.strict || c.writing > 0 {
		return
	}
	if !slices.ContainsFunc(w.clusters, func(c *cluster) bool { return c.max != w.limit }) {
		w.limit = 1 + w.Int32N(10)
	}
	c.max = w.limit
	c.observe(w.now)
	w.allowed = max(w.allowed, int64(w.limit))
}

// heal ends all faults. Then all demand is in the first cluster, and it must get all of maxReplicas that is no other's floor.
func (w *world) heal() {
	w.log("everything heals")
	w.takeOver(0)
	w.leaders[1] = nil
	w.calls, w.answers = nil, nil
	for i, c := range w.clusters {
		c.away, c.gone, c.max, c.reclaimed, c.lost = false, false, w.limit, false, false
		w.uids[c.id] = c.uid
		if c.demand = 0; i == 0 {
			c.demand = 100
		}
	}
	w.allowed = 1000 // what was reclaimed counts again
	w.commit(w.leaders[0], w.leaders[0].Settle(w.uids, nil, true))
	w.settle()
	first, others := w.clusters[0], int32(0)
	for _, c := range w.clusters[1:] {
		others += c.floor(c.Floor(key))
	}
	if first.held < w.limit-others || w.sum() != int64(first.held+others) {
		w.fault("%s needs all of %d but %d and holds %d; all hold %d; the hub has %v", first.id, w.limit, others, first.held, w.sum(),
			w.records[key])
	}
}

// lose takes a cluster away, for which the others have to keep minReplicas as far as their rooms go, and brings it back.
func (w *world) lose() {
	gone, least := w.clusters[w.IntN(len(w.clusters))], min(w.least, w.limit)
	for _, c := range w.clusters {
		c.demand = 0
	}
	w.settle()
	w.allowed = int64(w.limit)
	if got := w.sum(); got != int64(least) || kept(w.records[key]) != least {
		w.fault("without demand all hold %d of %d: %v", got, least, w.records[key])
	}
	gone.away, gone.lost = true, true
	w.leaders[0].Away(gone.id)
	w.commit(w.leaders[0], w.leaders[0].Settle(w.uids, nil, true))
	w.settle()
	var held, rooms int32
	for _, c := range w.clusters {
		if c != gone {
			held, rooms = held+c.held, rooms+*c.Room(key)
		}
	}
	if held != min(least, rooms) {
		w.fault("without %s the others hold %d of %d, in rooms of %d: %v", gone.id, held, least, rooms, w.records[key])
	}
	gone.away, gone.lost = false, false
	if w.IntN(2) == 0 {
		gone.held = 0 // its nodes were lost
		w.restart(gone)
	}
	w.settle()
	if got := w.sum(); got != int64(least) || kept(w.records[key]) != least {
		w.fault("once %s is back, all hold %d of %d: %v", gone.id, got, least, w.records[key])
	}
}

// settle lets workers and leader come to rest.
func (w *world) settle() {
	for range 40 {
		for _, c := range w.clusters {
			w.now = w.now.Add(allotpolicy.Unsure)
			c.ending = 0
			for range 3 {
				w.scale(c)
			}
			delete(w.leaders[0].waits, c.id)
			if c.away {
				continue
			}
			w.ask(0, c)
			for len(w.calls)+len(w.answers) > 0 {
				w.deliver()
			}
		}
	}
}
