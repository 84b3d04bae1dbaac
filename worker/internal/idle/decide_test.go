// SPDX-License-Identifier: Apache-2.0

package idle

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return noon.Add(d) }

func TestDecide(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		Life   Life
		silent bool // a source could not be read
		now    time.Duration
		reason Reason
		until  time.Duration // -1: forever
	}{
		"no timeouts":        {Life{Claimed: noon, Started: noon}, false, 9000 * time.Hour, "", -1},
		"idle since it runs": {Life{Timeouts: Timeouts{Idle: 60 * s}, Claimed: noon, Started: at(10 * s)}, false, 69 * s, "", 70 * s},
		"idle for too long": {Life{Timeouts: Timeouts{Idle: 60 * s}, Claimed: noon, Started: at(10 * s)}, false, 70 * s, IdleTimeout,
			70 * s},
		"active": {Life{Timeouts: Timeouts{Idle: 60 * s}, Claimed: noon, Started: noon, Active: at(50 * s)}, false,
			70 * s, "", 110 * s},
		"active, then idle": {Life{Timeouts: Timeouts{Idle: 60 * s}, Claimed: noon, Started: noon, Active: at(50 * s)}, false,
			110 * s, IdleTimeout, 110 * s},
		"active before it ran": {Life{Timeouts: Timeouts{Idle: 60 * s}, Claimed: noon, Started: at(30 * s), Active: at(5 * s)}, false,
			70 * s, "", 90 * s},
		"starting is not idling": {Life{Timeouts: Timeouts{Idle: 1 * s, FirstActivity: 1 * s}, Claimed: noon}, false, 100 * s, "", -1},
		"a source is silent":     {Life{Timeouts: Timeouts{Idle: 60 * s}, Claimed: noon, Started: noon}, true, 70 * s, "", 71 * s},
		"silent before its time": {Life{Timeouts: Timeouts{Idle: 60 * s}, Claimed: noon, Started: noon}, true, 10 * s, "", 60 * s},
		"old": {Life{Timeouts: Timeouts{MaxLifetime: 60 * s}, Claimed: noon, Started: at(10 * s), Active: at(59 * s)},
			false, 60 * s, MaxLifetime, 60 * s},
		"old while starting": {Life{Timeouts: Timeouts{MaxLifetime: 60 * s}, Claimed: noon}, false, 61 * s, MaxLifetime, 60 * s},
		"old, and a source is silent": {Life{Timeouts: Timeouts{MaxLifetime: 60 * s, Idle: s}, Claimed: noon, Started: noon}, true, 61 * s,
			MaxLifetime, 60 * s},
		"no activity": {Life{Timeouts: Timeouts{FirstActivity: 60 * s}, Claimed: noon, Started: at(s)}, false, 61 * s,
			FirstActivityTimeout, 61 * s},
		"some activity": {Life{Timeouts: Timeouts{FirstActivity: 60 * s}, Claimed: noon, Started: noon, Active: at(59 * s)},
			false, 3600 * s, "", -1},
		"no activity, a source's silent": {Life{Timeouts: Timeouts{FirstActivity: 60 * s}, Claimed: noon, Started: noon}, true, 61 * s, "",
			62 * s},
		"paused": {Life{Timeouts: Timeouts{Idle: s, FirstActivity: s, Paused: true}, Claimed: noon, Started: noon}, false,
			3600 * s, "", -1},
		"paused and old": {Life{Timeouts: Timeouts{Idle: s, MaxLifetime: 60 * s, Paused: true}, Claimed: noon, Started: noon}, false,
			60 * s, MaxLifetime, 60 * s},
		"the first to run out": {Life{Timeouts: Timeouts{Idle: 30 * s, MaxLifetime: 40 * s, FirstActivity: 20 * s}, Claimed: noon,
			Started: noon}, false, 50 * s, FirstActivityTimeout, 20 * s},
		"the next to run out": {Life{Timeouts: Timeouts{Idle: 30 * s, MaxLifetime: 40 * s, FirstActivity: 50 * s}, Claimed: noon,
			Started: noon}, false, s, "", 30 * s},
	} {
		got := decide(&tc.Life, !tc.silent, at(tc.now))
		until := at(tc.until)
		if tc.until < 0 {
			until = time.Time{}
		}
		if got.Reason != tc.reason || !got.Until.Equal(until) || (got.Reason == "") != (got.Limit == 0) {
			t.Errorf("%s: %q until %s (%s), want %q until %s", name, got.Reason, got.Until, got.Limit, tc.reason, until)
		}
	}
}

// I11: what is taken over is an age by one clock, whatever this process's own clock shows, and never too large.
func TestI11TakeOver(t *testing.T) {
	server := noon.Add(-10 * time.Minute) // this machine's clock is ahead
	ago := func(d time.Duration) time.Time {
		if d < 0 {
			return time.Time{}
		}
		return server.Add(-d)
	}
	const none = -1
	if got := (Decision{Reason: MaxLifetime, Limit: time.Second}).Message(); got != "claimed longer than 1s ago" {
		t.Errorf("a lifetime that was lowered: %q", got) // the sandbox may be older
	}
	for name, tc := range map[string]struct {
		claimed, started, active time.Duration // written so long ago
		starting                 bool
		want                     [3]time.Duration // taken to be so long ago
	}{
		"never active": {time.Hour, 50 * time.Minute, none, false,
			[3]time.Duration{time.Hour - slack, 50*time.Minute - slack, none}},
		"active": {time.Hour, time.Hour, time.Minute, false,
			[3]time.Duration{time.Hour - slack, time.Hour - slack, time.Minute - 30*time.Second}},
		"active less than 30 s ago": {time.Hour, time.Hour, 20 * time.Second, false,
			[3]time.Duration{time.Hour - slack, time.Hour - slack, 0}},
		"starting":                          {time.Minute, none, none, true, [3]time.Duration{time.Minute - slack, none, none}},
		"no times written":                  {none, none, none, false, [3]time.Duration{0, 0, none}},
		"written by a clock that ran ahead": {-time.Hour, -time.Hour, none, false, [3]time.Duration{0, 0, none}},
	} {
		w := Written{Claimed: ago(tc.claimed), Started: ago(tc.started), Active: ago(tc.active)}
		if tc.claimed == -time.Hour {
			w.Claimed, w.Started = server.Add(time.Hour), server.Add(time.Hour)
		}
		l := TakeOver(Timeouts{Idle: time.Second}, w, !tc.starting, server.Sub, noon)
		for i, got := range []time.Time{l.Claimed, l.Started, l.Active} {
			if tc.want[i] == none && !got.IsZero() || tc.want[i] != none && !got.Equal(noon.Add(-tc.want[i])) {
				t.Errorf("%s: time %d is %s, want %s before %s", name, i, got, tc.want[i], noon)
			}
		}
		if l.Idle != time.Second {
			t.Errorf("%s: timeouts %v", name, l.Timeouts)
		}
	}
}
