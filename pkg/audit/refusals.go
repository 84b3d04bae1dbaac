// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"sync"
	"time"
)

const (
	// maxOwn is how many refusals of one party have a line of their own per minute, and maxParties the number of parties that have such lines.
	maxOwn     = 3
	maxParties = 64
)

// refusals bounds the lines about refusals, so that a flood of refusals does not fill the disk. The number of lines depends on the number
// of parties, which is bounded.
type refusals struct {
	mu      sync.Mutex
	since   time.Time
	parties map[string]*refused
	others  *refused // refusals of all parties beyond the bound
}

// refused are the refusals of one party since the last summary.
type refused struct {
	last  Event
	seen  int
	extra int64 // refusals without a line
}

func newRefusals(now time.Time) *refusals {
	return &refusals{since: now, parties: map[string]*refused{}}
}

// admit reports whether a refusal gets a line of its own.
func (r *refusals) admit(party string, e Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.parties[party]
	if p == nil && len(r.parties) >= maxParties {
		if r.others == nil {
			r.others = &refused{last: Event{Verb: e.Verb, Result: Result{Outcome: e.Outcome, Reason: e.Reason, Code: e.Code}}}
		}
		r.others.extra++
		return false
	}
	if p == nil {
		p = &refused{}
		r.parties[party] = p
	}
	if p.seen++; p.seen <= maxOwn {
		return true
	}
	p.last = e
	p.extra++
	return false
}

// fold returns the summaries of the refusals since its last call.
func (r *refusals) fold(now time.Time) (summaries []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	add := func(p *refused) {
		if p == nil || p.extra == 0 {
			return
		}
		e := p.last
		e.Stage, e.ID, e.RequestID, e.TraceID, e.Time = Summary, "", "", "", now
		e.Count, e.Millis = p.extra, now.Sub(r.since).Milliseconds()
		summaries = append(summaries, e)
	}
	for _, p := range r.parties {
		add(p)
	}
	add(r.others)
	clear(r.parties)
	r.others, r.since = nil, now
	return summaries
}
