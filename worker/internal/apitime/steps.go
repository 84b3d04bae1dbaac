// SPDX-License-Identifier: Apache-2.0

package apitime

import (
	"fmt"
	"time"
)

const (
	// leastStep is the smallest jump that counts as a step. Smaller ones come from the header's whole seconds and the duration of responses.
	// Ages may be too large by this.
	leastStep = 2 * time.Second
	// tolerance is how far ahead of now a time of another writer may be.
	tolerance = 5 * time.Second
	// mostSteps bounds the steps in memory (I10).
	mostSteps = 16
	// longestStretch exceeds every timeout, and sixteen of them fit into a Duration.
	longestStretch = 10 * 365 * 24 * time.Hour
)

// step is a jump of the API server's clock. A stretch is the time between two steps. It begins with the To of one and ends with the From of
// the next. The first stretch has no beginning, and the last ends now.
type step struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Unseen is how long before its detection the step may have happened.
	Unseen time.Duration `json:"unseenNanoseconds,omitempty"`
}

// begins returns the earliest time of the stretch after the step. Times that a step forward may have skipped count as To, which is no
// earlier.
func (s *step) begins() time.Time {
	if s.To.Before(s.From) {
		return s.To.Add(-s.Unseen)
	}
	return s.To
}

// steps holds all known steps.
type steps struct {
	Steps []step `json:"steps,omitempty"` // oldest first
	// Doubt is how much further ahead the first stretch may be than one that was dropped.
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

// since returns how long ago the clock showed t. It uses the latest stretch that contains t, because after a step back two contain it. If
// no stretch contains t, because it is in the future or was skipped by a step, it counts as the next moment of a stretch.
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

// ago returns what the clock showed the given age ago.
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

// check validates the steps of another process. at is when that process recorded them.
func (s *steps) check(at time.Time) error {
	if len(s.Steps) > mostSteps {
		return fmt.Errorf("%d steps, at most %d", len(s.Steps), mostSteps)
	}
	if s.Doubt < 0 || s.Doubt > longestStretch {
		return fmt.Errorf("a doubt of %s", s.Doubt)
	}
	for i, step := range s.Steps {
		if step.Unseen < 0 || step.Unseen > longestStretch {
			return fmt.Errorf("a step that was not seen for %s", step.Unseen)
		}
		end := at
		if i+1 < len(s.Steps) {
			end = s.Steps[i+1].From
		}
		// Jumps that are too small to be a step may have set the clock back right after one.
		if lasted := end.Sub(step.To); lasted < -time.Minute || lasted > longestStretch {
			return fmt.Errorf("%s from the step to %s until %s", lasted, step.To, end)
		}
	}
	return nil
}
