// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"time"
)

const (
	// interval is the time between two looks.
	interval = 500 * time.Millisecond
	// lasting is how long something that passes must have stood unchanged to be wrong. Views of others are renewed every 3 s,
	// everything is looked through again every 10 s.
	lasting = 10 * time.Second
	// blindPatience is how long a part that cannot be looked at is waited for.
	blindPatience = 5 * time.Second
)

// Result is what looking at a federation came to.
type Result struct {
	Findings []Finding `json:"findings"`
	Notes    []string  `json:"notes,omitempty"`
	// Blind is what could not be looked at, at last.
	Blind []string `json:"notLookedAt,omitempty"`
	Looks int      `json:"looks"`
}

// Err is nil if nothing is wrong and everything could be looked at.
func (r Result) Err() error {
	text := ""
	for _, f := range r.Findings {
		text += "\n" + f.String()
	}
	for _, b := range r.Blind {
		text += "\ncould not look at " + b
	}
	if text == "" {
		return nil
	}
	return fmt.Errorf("verify, after %d looks:%s", r.Looks, text)
}

// Settle looks at the federation, twice at least, and again until nothing is wrong or patience has passed. What passes by
// itself is wrong only if it stands unchanged at the end; what must never be is wrong if any look saw it.
func (f *Federation) Settle(ctx context.Context, patience time.Duration) Result {
	begin := time.Now()
	grace := min(lasting, patience/2)
	ctx, cancel := context.WithDeadline(ctx, begin.Add(patience+grace+2*lookTimeout))
	defer cancel()
	var j judge
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		last := f.Look(ctx, j.first)
		if ctx.Err() != nil && j.looks > 1 {
			return j.result(time.Now(), grace) // that look was cut off, and tells of nothing but that
		}
		clean := j.take(last, time.Now())
		spent := time.Since(begin)
		unseen := len(last.Blind) > 0 && spent < min(blindPatience, patience)
		// What came up late is given its time as well.
		over := spent >= patience && j.young(time.Now(), grace) == 0 || spent >= patience+grace
		if j.looks > 1 && (clean && !unseen || over) {
			return j.result(time.Now(), grace)
		}
		select {
		case <-ctx.Done():
			return j.result(time.Now(), grace)
		case <-ticker.C:
		}
	}
}

// judge sums up looks.
type judge struct {
	first, last *Snapshot
	looks       int
	// found are the findings of the last look, and what must never be that any look saw, by what is the same of them.
	found map[Finding]seen
}

// seen is a finding as it was seen last, and since when it stands.
type seen struct {
	Finding
	since time.Time
}

// take takes one more look in and reports whether nothing is wrong.
func (j *judge) take(s *Snapshot, now time.Time) (clean bool) {
	found := Check(s)
	if j.first == nil {
		j.first = s
	} else {
		found = append(found, Compare(j.first, s)...)
	}
	j.last = s
	j.looks++
	next := map[Finding]seen{}
	for same, f := range j.found {
		if !f.passing {
			next[same] = f
		}
	}
	for _, f := range found {
		since := now
		if before, stood := j.found[f.same()]; stood {
			since = before.since
		}
		next[f.same()] = seen{f, since}
	}
	j.found = next
	return len(next) == 0
}

// young counts what may yet pass.
func (j *judge) young(now time.Time, grace time.Duration) (n int) {
	for _, f := range j.found {
		if f.passing && now.Sub(f.since) < grace {
			n++
		}
	}
	return n
}

func (j *judge) result(now time.Time, grace time.Duration) Result {
	r := Result{Looks: j.looks, Findings: []Finding{}, Notes: Notes(j.last)}
	for _, f := range j.found {
		if !f.passing || now.Sub(f.since) >= grace {
			r.Findings = append(r.Findings, f.Finding)
		}
	}
	r.Findings = order(r.Findings)
	if moving := j.young(now, grace); moving > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("differences that changed within the last %s, and are not counted: %d; a federation at work is always a little behind", grace, moving))
	}
	for _, b := range j.last.Blind {
		r.Blind = append(r.Blind, b.String())
	}
	return r
}
