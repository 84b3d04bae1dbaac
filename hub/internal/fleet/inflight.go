// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"sync"
	"sync/atomic"

	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

const (
	// coverWindow bounds how far beyond the last report the coveredBy of a response may lie, and so the number of entries (I10). The next
	// report covers a response, or the one after if the next is already in flight.
	coverWindow = 4
	// coverBeats is the number of heartbeats after which a claim counts as covered in any case: a worker whose counts returned to their old
	// values has nothing to report.
	coverBeats = 2
)

// inFlight holds the deductions of granted claims until a report covers them.
type inFlight struct {
	mu      sync.Mutex
	applied segment.Order
	beats   uint64
	waiting map[coverage]deduction
}

type coverage struct {
	cell     *atomic.Int32
	sequence uint64
}

type deduction struct {
	claims int32
	beat   uint64
	told   map[memberKey]int32 // the number of claims that shares counts, by member
}

// Reservation deducts one claim from a member's ready idle Pods. Every reservation ends with Settle or Cancel. Later calls have no effect,
// so that Cancel can be deferred. It is not safe for concurrent use.
type Reservation struct {
	owner       *inFlight
	cell        *atomic.Int32
	incarnation uint64
	overdrawn   bool
	ended       bool
	key         *memberKey // its entry in shares; nil: there are no peers
}

// Reserve deducts a claim that is about to be dispatched to the view's candidate.
func (f *Fleet) Reserve(view *router.View, index int) Reservation {
	chosen := view.Candidate(index)
	r := Reservation{cell: chosen.InFlight}
	if c := f.cluster(chosen.Cluster.ID); c != nil && r.cell != nil {
		r.owner = &c.inFlight
		if s := c.session.Load(); s != nil {
			r.incarnation = s.Incarnation()
		}
		left := chosen.Member().Free(r.cell.Add(1))
		r.overdrawn = left < 0
		if len(f.relayed()) > 0 {
			r.key = &memberKey{c, chosen.Segment.Key(), chosen.Member().Name}
			f.begin(*r.key, left)
		}
	}
	return r
}

// Overdrawn reports whether other claims had already reserved all idle Pods of the candidate; because other claims choose at the same time.
func (r *Reservation) Overdrawn() bool { return r.overdrawn }

// Cancel ends a reservation whose claim took no Pod.
func (r *Reservation) Cancel() {
	if r.owner == nil || r.ended {
		return
	}
	r.ended = true
	r.cell.Add(-1)
	if r.key != nil {
		r.key.cluster.fleet.end(*r.key, 1)
	}
}

// Settle ends a reservation whose claim took a Pod. The claim stays deducted until a report of the same incarnation with a sequence of at
// least coveredBy has counted. 0 means that the reported counts already include the claim.
func (r *Reservation) Settle(coveredBy uint64) {
	if r.owner == nil || r.ended {
		return
	}
	r.ended = true
	r.owner.settle(r.cell, r.key, segment.Order{Incarnation: r.incarnation, Sequence: coveredBy})
}

func (f *inFlight) settle(cell *atomic.Int32, told *memberKey, by segment.Order) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if by.Incarnation != f.applied.Incarnation || by.Sequence <= f.applied.Sequence {
		cell.Add(-1)
		if told != nil {
			told.cluster.fleet.end(*told, 1)
		}
		return
	}
	key := coverage{cell, min(by.Sequence, f.applied.Sequence+coverWindow)}
	if f.waiting == nil {
		f.waiting = map[coverage]deduction{}
	}
	d := f.waiting[key]
	if told != nil {
		if d.told == nil {
			d.told = map[memberKey]int32{}
		}
		d.told[*told]++
	}
	f.waiting[key] = deduction{claims: d.claims + 1, beat: f.beats, told: d.told}
}

// covered ends the deductions that a report covers. A report of another incarnation ends all of them.
func (f *inFlight) covered(order segment.Order) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := order.Incarnation != f.applied.Incarnation
	f.applied = order
	for key, d := range f.waiting {
		if all || key.sequence <= order.Sequence {
			f.end(key, d)
		}
	}
}

// heartbeat ends the deductions that have waited for more than coverBeats heartbeats: no report will cover them.
func (f *inFlight) heartbeat() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beats++
	for key, d := range f.waiting {
		if f.beats-d.beat > coverBeats {
			f.end(key, d)
		}
	}
}

func (f *inFlight) end(key coverage, d deduction) {
	key.cell.Add(-d.claims)
	for member, claims := range d.told {
		member.cluster.fleet.end(member, claims)
	}
	delete(f.waiting, key)
}
