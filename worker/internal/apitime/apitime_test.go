// SPDX-License-Identifier: Apache-2.0

package apitime

import (
	"net/http"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// A local clock that is ten minutes off changes nothing after the server's first response (I11).
func TestShowsTheServersTime(t *testing.T) {
	server := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var up time.Duration
	c := NewOn(Machine{Up: func() time.Duration { return up }}, testclock.NewFakePassiveClock(server.Add(-10*time.Minute)))
	pass := func(d time.Duration) { up += d }
	see := func(offset time.Duration) { c.observe(server.Add(offset).Format(http.TimeFormat), up) }
	check := func(what string, offset time.Duration) {
		t.Helper()
		if got := c.Now(); !got.Equal(server.Add(offset)) {
			t.Errorf("%s: %s, want %s", what, got, server.Add(offset))
		}
	}

	check("before any answer: local", -10*time.Minute)
	see(0)
	check("first answer", 0)
	pass(1500 * time.Millisecond)
	check("goes on", 1500*time.Millisecond)
	see(1 * time.Second)
	check("the header's whole seconds set nothing back", 1500*time.Millisecond)
	see(3 * time.Second)
	check("forward", 3*time.Second)
	see(-60 * time.Second)
	check("server's clock was set back", -60*time.Second)
	c.observe("nonsense", up)
	check("nonsense changes nothing", -60*time.Second)
}

// I11: ages are of the time that passed, whatever the clock was set to meanwhile, and also where it was set in many small steps.
func TestI11AgesAcrossSteps(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for name, tc := range map[string]struct {
		every time.Duration // between two responses
		step  time.Duration // each time
		took  time.Duration // a response
	}{
		"none":                        {s, 0, 0},
		"slow answers":                {10 * s, 0, 8 * s},
		"small ones forward":          {s, 1900 * ms, 0},
		"small ones back":             {s, -1900 * ms, 0},
		"small ones, slow answers":    {20 * s, 1900 * ms, 15 * s},
		"large ones forward":          {10 * s, 600 * s, 0},
		"large ones back":             {10 * s, -600 * s, 0},
		"a clock that is a bit quick": {s, ms / 2, 0},
	} {
		site := newSite()
		c := site.process("a")
		site.answers(c)
		began, set := site.up, time.Duration(0)
		written := c.Now()
		for range mostSteps {
			site.pass(tc.every - tc.took)
			site.server = site.server.Add(tc.step)
			set += tc.step
			asked, date := site.up, site.server
			site.pass(tc.took)
			c.observe(date.Format(http.TimeFormat), asked)
		}
		passed, late := site.up-began, 3*s+tc.took
		if tc.step < 0 {
			late = passed // by when it was written the clock has been again since
		}
		if got := c.Since(written); got > passed+leastStep || got < passed-late {
			t.Errorf("%s: %s passed, the age is %s, and the clock was set by %s", name, passed, got, set)
		}
		for _, age := range []time.Duration{0, s, passed / 2, passed} {
			if got := c.Since(c.Ago(age)); got > age {
				t.Errorf("%s: what was %s ago is %s old", name, age, got)
			}
		}
	}
}
