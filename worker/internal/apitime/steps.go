// SPDX-License-Identifier: Apache-2.0

package apitime

import (
	"fmt"
	"time"
)

const (
	// leastStep is what counts as a step. Less is the header's whole seconds and the time that answers take, and ages may be too
	// great by it.
	leastStep = 2 * time.Second
	// tolerance is how far ahead of now a time may be that somebody else has written.
	tolerance = 5 * time.Second
	// mostSteps bounds what is remembered (I10).
	mostSteps = 16
	// longestStretch is more than anybody waits for, and far from what a Duration cannot hold sixteen times.
	longestStretch = 10 * 365 * 24 * time.Hour
)

// step is a jump of the API server's clock. Between two of them is a stretch, which begins with the To of one and ends with
// the From of the next; the first has no beginning, and the last one is now.
type step struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Unseen is how long before it was noticed it may have been made.
	Unseen time.Duration `json:"unseenNanoseconds,omitempty"`
}

// begins is the earliest time that the stretch after the step can have. What a step forward may have left out of it counts as
// To, which is no earlier.
func (s *step) begins() time.Time {
	if s.To.Before(s.From) {
		return s.To.Add(-s.Unseen)
	}
	return s.To
}

// steps are all that is known.
type steps struct {
	Steps []step `json:"steps,omitempty"` // oldest first
	// Doubt is how much further ahead the first stretch may be than one that is not remembered any more.
	Doubt time.Duration `json:"doubtNanoseconds,omitempty"`
}

func (s *steps) add(from, to time.Time, unseen time.Duration) {
	s.Steps = append(s.Steps, step{From: from.UTC(), To: to.UTC(), Unseen: min(unseen, longestStretch)})
	if len(s.Steps) > mostSteps {
		oldest := s.Steps[0]
		s.Doubt = min(max(0, s.Doubt+oldest.To.Sub(oldest.From)), longestStretch)
		s.Steps = s.Steps[1:]
	}
}

// since is how long ago the clock showed t: by the latest stretch that has t, since after a step back two have it. What no
// stretch has, since it lies ahead or was stepped over, counts as the next moment that one has.
func (s *steps) since(t, now time.Time) time.Duration {
	var after time.Duration // from the end of the stretch until now
	end, skipped := now, time.Duration(-1)
	for i := len(s.Steps); ; i-- {
		if i == 0 || !t.Before(s.Steps[i-1].begins()) {
			if !t.After(end.Add(tolerance)) {
				age := max(0, end.Sub(t))
				if i == 0 {
					age = max(0, age-s.Doubt)
				}
				return after + age
			}
			if skipped < 0 {
				skipped = after
			}
		}
		if i == 0 {
			return skipped
		}
		after += max(0, end.Sub(s.Steps[i-1].To))
		end = s.Steps[i-1].From
	}
}

// ago is what the clock showed so long ago.
func (s *steps) ago(age time.Duration, now time.Time) time.Time {
	end := now
	for i := len(s.Steps) - 1; i >= 0; i-- {
		lasted := max(0, end.Sub(s.Steps[i].To))
		if age <= lasted {
			break
		}
		age -= lasted
		end = s.Steps[i].From
	}
	return end.Add(-age)
}

// check is for steps that somebody else has noted; at is when.
func (s *steps) check(at time.Time) error {
	if len(s.Steps) > mostSteps {
		return fmt.Errorf("%d steps, at most %d", len(s.Steps), mostSteps)
	}
	if s.Doubt < 0 || s.Doubt > longestStretch {
		return fmt.Errorf("a doubt of %s", s.Doubt)
	}
	for i, step := range s.Steps {
		if step.Unseen < 0 || step.Unseen > longestStretch {
			return fmt.Errorf("a step that nobody saw for %s", step.Unseen)
		}
		end := at
		if i+1 < len(s.Steps) {
			end = s.Steps[i+1].From
		}
		// What is too little to be a step may have set the clock back right after one.
		if lasted := end.Sub(step.To); lasted < -time.Minute || lasted > longestStretch {
			return fmt.Errorf("%s from the step to %s until %s", lasted, step.To, end)
		}
	}
	return nil
}
