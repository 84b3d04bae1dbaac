// SPDX-License-Identifier: Apache-2.0

package idle

import (
	"fmt"
	"time"
)

const (
	// writeEvery is how far the written activity may be behind a touch that has returned.
	writeEvery = 23 * time.Second
	// telling is how much further it may be behind traffic that waits for no write: 2 s until a touch reports it, and its write.
	telling = 3 * time.Second
	// slack is by how much two times in whole seconds, of one clock, can make an age look longer than it is, plus what package
	// apitime does not detect as a step.
	slack = 4 * time.Second
	// askAgain is when to look again after a source could not be read.
	askAgain = time.Second
)

// Reason is why a sandbox ends without a call: the failure reason of its record.
type Reason string

// The reasons.
const (
	IdleTimeout          Reason = "IdleTimeout"
	MaxLifetime          Reason = "MaxLifetime"
	FirstActivityTimeout Reason = "FirstActivityTimeout"
)

// reasons has a row for each reason.
var reasons = map[Reason]struct {
	message    string // of the record; the argument is the timeout
	byActivity bool   // it does not end a sandbox whose activity could not be read
}{
	IdleTimeout: {"no activity for %s", true},
	MaxLifetime: {"claimed longer than %s ago", false},
	FirstActivityTimeout: {"no activity in its first %s; touch a sandbox without a claim key to keep it, " +
		"or claim it with firstActivityTimeout 0", true},
}

// Known reports whether r is one of the reasons.
func (r Reason) Known() bool {
	_, known := reasons[r]
	return known
}

// Timeouts of a sandbox. Zero is none.
type Timeouts struct {
	Idle          time.Duration
	Lifetime      time.Duration
	FirstActivity time.Duration
	// Paused: the sandbox does not end for lack of activity.
	Paused bool
}

// Life is the state of a sandbox. Its times have monotonic readings of one process.
type Life struct {
	Timeouts
	Claimed time.Time
	Started time.Time // zero: it does not run yet
	Active  time.Time // last activity; zero: none
}

// Decision is whether a sandbox ends.
type Decision struct {
	Reason Reason        // why it ends now; empty: it stays
	Limit  time.Duration // the timeout that has run out
	Until  time.Time     // it stays until then at least, unless its timeouts change; zero: forever
}

// Message is the failure message of a sandbox that ends.
func (d Decision) Message() string { return fmt.Sprintf(reasons[d.Reason].message, d.Limit) }

// decide takes the timeout that runs out first. asked is false when a source of activity could not be read: then the sandbox does
// not end for lack of activity.
func decide(l *Life, asked bool, now time.Time) Decision {
	var first Decision
	limit := func(reason Reason, timeout time.Duration, since time.Time) {
		if timeout <= 0 || since.IsZero() {
			return
		}
		at := since.Add(timeout)
		if again := now.Add(askAgain); !asked && reasons[reason].byActivity && at.Before(again) {
			at = again
		}
		if first.Until.IsZero() || at.Before(first.Until) {
			first = Decision{Reason: reason, Limit: timeout, Until: at}
		}
	}
	limit(MaxLifetime, l.Lifetime, l.Claimed)
	if !l.Started.IsZero() && !l.Paused {
		limit(IdleTimeout, l.Idle, later(l.Started, l.Active))
		if l.Active.IsZero() {
			limit(FirstActivityTimeout, l.FirstActivity, l.Started)
		}
	}
	if first.Until.After(now) {
		return Decision{Until: first.Until}
	}
	return first
}

// Written are the times on a Pod, by the API server's clock.
type Written struct {
	Claimed time.Time
	Started time.Time // zero: it does not run yet
	Active  time.Time // zero: no activity
}

// TakeOver returns a life from what an earlier leader wrote. since returns how long ago the API server's clock showed a time, or
// less. A time that is missing counts as now.
func TakeOver(t Timeouts, w Written, running bool, since func(time.Time) time.Duration, now time.Time) Life {
	moment := func(at time.Time, margin time.Duration) time.Time {
		if at.IsZero() {
			return now
		}
		return now.Add(-max(0, since(at)-margin))
	}
	l := Life{Timeouts: t, Claimed: moment(w.Claimed, slack)}
	if running {
		l.Started = moment(w.Started, slack)
	}
	if !w.Active.IsZero() {
		l.Active = moment(w.Active, slack+writeEvery+telling)
	}
	return l
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
