// SPDX-License-Identifier: Apache-2.0

package apitime

import (
	"net/http"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"navix.sh/atoll/e2e/must"
)

// site is a cluster whose clocks are in the test's hands.
type site struct {
	server time.Time
	up     time.Duration
	local  *testclock.FakePassiveClock
}

func newSite() *site {
	return &site{server: noon, up: time.Hour, local: testclock.NewFakePassiveClock(noon)}
}

func (s *site) pass(d time.Duration) {
	s.server, s.up = s.server.Add(d), s.up+d
	s.local.SetTime(s.local.Now().Add(d))
}

// process starts a process on a machine; empty: on an unknown one.
func (s *site) process(boot string) *Clock {
	return NewOn(Machine{Boot: boot, Up: func() time.Duration { return s.up }}, s.local)
}

func (s *site) answers(c *Clock) { c.observe(s.server.Format(http.TimeFormat), s.up) }

// I11: the next leader takes over ages that are not too large, and on the same machine right ones, also when the API server's
// clock was stepped while no worker ran.
func TestI11Inherit(t *testing.T) {
	const m, s = time.Minute, time.Second
	for name, tc := range map[string]struct {
		under                    time.Duration // step of the API server's clock while the first process runs
		between                  time.Duration // and while none runs
		local                    time.Duration // of this machine's clock, or how far the next one's differs
		next                     string        // machine
		want                     time.Duration // the age of what was written 3 minutes ago
		wantLate, wantAfterwards time.Duration // what was written after the first step, a minute ago; a minute on
	}{
		"no step":                               {0, 0, 0, "a", 3 * m, m, 2 * m},
		"no step, another machine":              {0, 0, 0, "b", 3 * m, m, 2 * m},
		"clock forward, seen":                   {10 * m, 0, 0, "a", 3 * m, m, 2 * m},
		"clock forward, seen, another machine":  {10 * m, 0, 0, "b", 3 * m, m, 2 * m},
		"clock back, seen":                      {-10 * m, 0, 0, "a", 3 * m, m, 2 * m},
		"clock forward, unseen":                 {0, 10 * m, 0, "a", 3 * m, m, 2 * m},
		"clock forward, unseen, also the local": {0, 10 * m, 10 * m, "a", 3 * m, m, 2 * m},
		"clock back, unseen":                    {0, -10 * m, 0, "a", 3 * m, m, 2 * m},
		"forward, unseen, another machine":      {0, 10 * m, 0, "b", 150 * s, 30 * s, 90 * s}, // 30 s were without a leader
		"back, unseen, another machine":         {0, -10 * m, 0, "b", 150 * s, 30 * s, 90 * s},
		"another machine, whose clock is off":   {0, 0, -10 * m, "b", 150 * s, 30 * s, 90 * s},
		"machines without a name":               {0, 10 * m, 0, "", 150 * s, 30 * s, 90 * s},
		"to and fro":                            {10 * m, -7 * m, 0, "a", 3 * m, m, 2 * m},
	} {
		site := newSite()
		boot := "a"
		if tc.next == "" {
			boot = ""
		}
		first := site.process(boot)
		site.answers(first)
		early := first.Now()
		site.pass(2 * m)
		site.server = site.server.Add(tc.under)
		site.answers(first)
		late := first.Now()
		site.pass(30 * s)
		site.answers(first)
		left := first.Leave()

		site.pass(30 * s)
		site.server = site.server.Add(tc.between)
		site.local.SetTime(site.local.Now().Add(tc.local))
		second := site.process(tc.next)
		site.answers(second)
		if err := second.Inherit(left); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := second.Since(early); got != tc.want {
			t.Errorf("%s: written %s ago, want %s", name, got, tc.want)
		}
		if got := second.Since(late); got != tc.wantLate {
			t.Errorf("%s: later written %s ago, want %s", name, got, tc.wantLate)
		}
		if !second.Now().Equal(site.server) {
			t.Errorf("%s: it is %s, want %s", name, second.Now(), site.server)
		}
		third := site.process(tc.next)
		site.answers(third)
		if err := third.Inherit(second.Leave()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		site.pass(m)
		if got := third.Since(late); got != tc.wantAfterwards {
			t.Errorf("%s: for the third leader written %s ago, want %s", name, got, tc.wantAfterwards)
		}
	}
}

// I11: what a leader wrote after a step that its successor noticed later, or only found, is not taken for what it wrote before.
func TestI11WrittenBetweenAStepAndItsNotice(t *testing.T) {
	for name, standby := range map[string]bool{"a standby that had not looked": true, "none": false} {
		for _, next := range []string{"a", "b"} {
			for _, stepped := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
				site := newSite()
				leader, follower := site.process("a"), site.process(next)
				site.answers(leader)
				left := leader.Leave()
				site.answers(follower)
				must.Succeed(t, follower.Inherit(left))
				site.pass(time.Second)
				site.server = site.server.Add(stepped)
				site.answers(leader)
				written := leader.Now()
				if standby {
					site.pass(time.Second)
					site.answers(follower)
				}
				site.pass(20 * time.Second)
				if !standby {
					follower = site.process(next)
					site.answers(follower)
					must.Succeed(t, follower.Inherit(left))
				}
				site.answers(follower)
				if got := follower.Since(written); got > 21*time.Second {
					t.Errorf("%s on machine %s, a step by %s: written %s ago, want 21s at most", name, next, stepped, got)
				}
			}
		}
	}
}

// What cannot be parsed is not accepted, and is not read again.
func TestInheritRefuses(t *testing.T) {
	for left, want := range map[string]string{
		"{":           "unexpected end",
		`{"steps":3}`: "cannot unmarshal",
		`{"server":"2026-03-01T12:00:00Z","steps":[{"from":"2026-03-01T12:00:00Z","to":"2026-03-01T12:02:00Z"}]}`: "-2m0s from the step",
		`{"server":"2026-03-01T12:00:00Z","steps":[{"from":"0001-01-01T00:00:00Z","to":"0001-01-01T00:00:00Z"}]}`: "from the step to 0001",
		`{"server":"2026-03-01T12:00:00Z","steps":[{"from":"2026-03-01T12:00:00Z","to":"2026-03-01T12:00:00Z","unseenNanoseconds":-1}]}`: "a " +
			"step that was not seen",
		`{"steps":[` + strings.Repeat(`{},`, 16) +
			`{}]}`: "17 steps, at most 16",
	} {
		site := newSite()
		c := site.process("a")
		site.answers(c)
		if err := c.Inherit(left); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", left, err, want)
		}
		if got := c.Since(at(-time.Minute)); got != time.Minute {
			t.Errorf("%s: a minute ago is %s ago", left, got)
		}
	}
}

// I10: the steps of a clock that goes to and fro, as behind a balancer of API servers that disagree, are bounded.
func TestI10StepsAreBounded(t *testing.T) {
	site := newSite()
	c := site.process("a")
	for range 1000 {
		site.answers(c)
		site.pass(time.Second)
		site.server = site.server.Add(time.Minute)
		site.answers(c)
		site.server = site.server.Add(-time.Minute)
	}
	if len(c.steps.Steps) != mostSteps || len(c.Leave()) > 4096 {
		t.Errorf("%d steps, %d bytes", len(c.steps.Steps), len(c.Leave()))
	}
	if err := site.process("a").Inherit(c.Leave()); err != nil {
		t.Error(err)
	}
	if got := c.Since(noon); got > 1000*time.Second || got < 880*time.Second {
		t.Errorf("noon was %s ago, want 1000s at most", got)
	}
}

func FuzzInherit(f *testing.F) {
	site := newSite()
	c := site.process("a")
	site.answers(c)
	site.server = site.server.Add(time.Hour)
	site.answers(c)
	f.Add(c.Leave())
	f.Add(`{"server":"2026-03-01T12:00:00Z","upNanoseconds":-9223372036854775808,"boot":"a"}`)
	f.Fuzz(func(t *testing.T, left string) {
		site := newSite()
		c := site.process("a")
		site.answers(c)
		_ = c.Inherit(left)
		for _, d := range []time.Duration{-100 * 365 * 24 * time.Hour, -time.Minute, 0, time.Hour} {
			if got := c.Since(at(d)); got < 0 {
				t.Errorf("%s ago", got)
			}
		}
	})
}
