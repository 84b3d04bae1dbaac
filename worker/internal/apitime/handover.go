// SPDX-License-Identifier: Apache-2.0

package apitime

import (
	"encoding/json"
	"fmt"
	"time"
)

// handover is what a process leaves to the next: what three clocks showed at one moment, and what it knows of steps.
type handover struct {
	Server time.Time `json:"server"`
	// Local is the process' own wall clock.
	Local time.Time `json:"local"`
	// Boot and Up are of its machine.
	Boot string        `json:"boot,omitempty"`
	Up   time.Duration `json:"upNanoseconds"`
	steps
}

// Leave is for the process that comes after this one: what its Inherit takes. It is empty before the API server's first
// answer.
func (c *Clock) Leave() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base.IsZero() {
		return ""
	}
	text, err := json.Marshal(handover{
		Server: c.shown().UTC(), Local: c.local.Now().UTC().Round(0), Boot: c.machine.Boot, Up: c.machine.Up(), steps: c.steps,
	})
	if err != nil {
		return "" // a year of five digits: there is nothing to be learnt from such a clock
	}
	return string(text)
}

// Inherit takes what an earlier process has left, once: what follows this process sees itself. An error says why it was not
// taken, and then nothing is known of steps before this process began.
func (c *Clock) Inherit(left string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inherited || c.base.IsZero() {
		return nil
	}
	c.inherited = true
	if left == "" {
		return nil
	}
	var l handover
	if err := json.Unmarshal([]byte(left), &l); err != nil {
		return fmt.Errorf("reading the clocks of the leader before: %w", err)
	}
	if err := l.check(l.Server); err != nil {
		return fmt.Errorf("reading the clocks of the leader before: %w", err)
	}
	c.steps = l.steps // what was seen until now is in the one that is added
	now := c.shown()
	passed, sure := l.passed(c.machine, c.local.Now(), now)
	if expected := l.Server.Add(passed); now.Sub(expected).Abs() >= leastStep+passed/unevenness {
		unseen := passed + leastStep
		if !sure {
			unseen = longestStretch
		}
		c.steps.add(expected, now, unseen)
	}
	c.drift, c.even = 0, c.machine.Up()
	return nil
}

// passed is how long ago it was left. On the same machine its uptime knows. On another one two clocks have to agree, or one of
// them was stepped, or they are of machines that disagree: nothing is sure to have passed then.
func (l *handover) passed(on Machine, local, server time.Time) (passed time.Duration, sure bool) {
	up := on.Up()
	if l.Boot != "" && l.Boot == on.Boot && 0 <= l.Up && l.Up <= up {
		return up - l.Up, true
	}
	here, there := local.Round(0).Sub(l.Local), server.Sub(l.Server)
	if (here - there).Abs() >= tolerance {
		return 0, false
	}
	return max(0, min(here, there)), true
}
