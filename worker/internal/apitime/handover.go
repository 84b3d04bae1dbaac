// SPDX-License-Identifier: Apache-2.0

package apitime

import (
	"encoding/json"
	"fmt"
	"time"
)

// handover is the state that a process leaves to the next: the times of three clocks at one moment, and the steps.
type handover struct {
	Server time.Time `json:"server"`
	// Local is the process's own wall clock.
	Local time.Time `json:"local"`
	// Boot and Up are of its machine.
	Boot string        `json:"boot,omitempty"`
	Up   time.Duration `json:"upNanoseconds"`
	steps
}

// Leave returns the text that the next process passes to Inherit. It is "" before the API server's first response.
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
		return "" // a year of five digits; such a clock is useless
	}
	return string(text)
}

// Inherit takes over the state that an earlier process left, once: this process sees all later steps itself. If it returns an error, the
// state was not accepted, and the steps before this process are unknown.
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
	c.steps = l.steps // the added step includes the steps seen until now
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

// passed returns how long ago the state was left. On the same machine, the uptime shows it. On another machine, two clocks must agree. If
// they do not, one of them was stepped, or the machines disagree, and no time is certain to have passed.
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
