// SPDX-License-Identifier: Apache-2.0

package idle

import (
	"fmt"
	"time"
)

const (
	// writeEvery is how far the written activity may lag behind a touch that has returned.
	writeEvery = 23 * time.Second
	// trafficLag is how much further it may lag behind traffic, which waits for no write: 2 s until a touch reports it, and the write.
	trafficLag = 3 * time.Second
	// slack bounds by how much an age can look too long: the rounding of two times of one clock to whole seconds, and the steps that package
	// apitime does not detect.
	slack = 4 * time.Second
	// askAgain is when to check again after a source could not be read.
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
	byActivity bool   // does not end a sandbox whose activity could not be read
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

// Timeouts are the timeouts of a sandbox. Zero means none.
type Timeouts struct {
	Idle          time.Duration
	MaxLifetime   time.Duration
	FirstActivity time.Duration
	// Paused means that the sandbox does not end for lack of activity.
	Paused bool
}

// Life is the state of a sandbox. Its times have monotonic readings of one process.
type Life struct {
	Timeouts
	Claimed time.Time
	// Started is the time from which idle time counts: when the sandbox began to run, or the latest Renew after that. Zero: it does not run
	// yet.
	Started time.Time
	Active  time.Time // last activity; zero: none
}

// Decision says whether a sandbox ends.
type Decision struct {
	Reason Reason        // why it ends now; empty: it stays
	Limit  time.Duration // the timeout that has run out
	Until  time.Time     // it stays at least until then, unless its timeouts change; zero is forever
}

// Message returns the failure message of a sandbox that ends.
func (d Decision) Message() string { return fmt.Sprintf(reasons[d.Reason].message, d.Limit) }

// decide returns the decision for the timeout that runs out first. asked is false if a source of activity could not be read: then the
// sandbox does not end for lack of activity.
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
	limit(MaxLifetime, l.MaxLifetime, l.Claimed)
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

// TakeOver returns the Life of a sandbox, given the times that an earlier leader wrote. since returns how long ago the API server's clock
// showed a time, or less. A missing time counts as now.
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
		l.Active = moment(w.Active, slack+writeEvery+trafficLag)
	}
	return l
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
