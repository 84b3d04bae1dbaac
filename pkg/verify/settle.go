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
	// lasting is how long a transient finding must be unchanged to count as wrong. Views of other clusters are renewed every 3 s; every view
	// is checked against its source every 10 s.
	lasting = 10 * time.Second
	// blindPatience bounds how long to wait for a part that cannot be read.
	blindPatience = 5 * time.Second
)

// Result is the outcome of Settle.
type Result struct {
	Findings []Finding `json:"findings"`
	Notes    []string  `json:"notes,omitempty"`
	// Blind lists what the last look could not read.
	Blind []string `json:"notLookedAt,omitempty"`
	Looks int      `json:"looks"`
}

// Err returns nil if nothing is wrong and everything could be read.
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

// Settle looks at the federation at least twice, and continues until nothing is wrong or patience is over. A transient finding counts only
// if it is unchanged at the end. Any other finding counts if any look saw it.
func (f *Federation) Settle(ctx context.Context, patience time.Duration) Result {
	begin := time.Now()
	grace := min(lasting, patience/2)
	ctx, cancel := context.WithDeadline(ctx, begin.Add(patience+grace+2*lookTimeout))
	defer cancel()
	var a accumulator
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		last := f.Look(ctx, a.first)
		if ctx.Err() != nil && a.looks > 1 {
			return a.result(time.Now(), grace) // that look was cut off, and shows nothing but that
		}
		clean := a.take(last, time.Now())
		spent := time.Since(begin)
		unseen := len(last.Blind) > 0 && spent < min(blindPatience, patience)
		// Findings that appear late also get their time.
		over := spent >= patience && a.young(time.Now(), grace) == 0 || spent >= patience+grace
		if a.looks > 1 && (clean && !unseen || over) {
			return a.result(time.Now(), grace)
		}
		select {
		case <-ctx.Done():
			return a.result(time.Now(), grace)
		case <-ticker.C:
		}
	}
}

// accumulator collects what the looks found.
type accumulator struct {
	first, last *Snapshot
	looks       int
	// found are the findings of the last look, and all findings so far that are not transient, by Finding.same.
	found map[Finding]seen
}

// seen is the latest version of a finding, and since when it exists.
type seen struct {
	Finding
	since time.Time
}

// take adds one look. It reports whether nothing is wrong.
func (a *accumulator) take(s *Snapshot, now time.Time) (clean bool) {
	found := Check(s)
	if a.first == nil {
		a.first = s
	} else {
		found = append(found, Compare(a.first, s)...)
	}
	a.last = s
	a.looks++
	next := map[Finding]seen{}
	for same, f := range a.found {
		if !f.passing {
			next[same] = f
		}
	}
	for _, f := range found {
		since := now
		if before, stood := a.found[f.same()]; stood {
			since = before.since
		}
		next[f.same()] = seen{f, since}
	}
	a.found = next
	return len(next) == 0
}

// young counts the transient findings that may still disappear.
func (a *accumulator) young(now time.Time, grace time.Duration) (n int) {
	for _, f := range a.found {
		if f.passing && now.Sub(f.since) < grace {
			n++
		}
	}
	return n
}

func (a *accumulator) result(now time.Time, grace time.Duration) Result {
	r := Result{Looks: a.looks, Findings: []Finding{}, Notes: Notes(a.last)}
	for _, f := range a.found {
		if !f.passing || now.Sub(f.since) >= grace {
			r.Findings = append(r.Findings, f.Finding)
		}
	}
	r.Findings = order(r.Findings)
	if moving := a.young(now, grace); moving > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("differences that changed within the last %s, and are not counted: %d; a federation at work is "+
			"always a little behind", grace, moving))
	}
	for _, b := range a.last.Blind {
		r.Blind = append(r.Blind, b.String())
	}
	return r
}
