// SPDX-License-Identifier: Apache-2.0

package apitime

import (
	"net/http"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// A local clock that is ten minutes off changes nothing once the server has answered (I11).
func TestShowsTheServersTime(t *testing.T) {
	server := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	local := testclock.NewFakePassiveClock(server.Add(-10 * time.Minute))
	c := New(local)
	pass := func(d time.Duration) { local.SetTime(local.Now().Add(d)) }
	see := func(offset time.Duration) { c.observe(server.Add(offset).Format(http.TimeFormat), local.Now()) }
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
	c.observe("nonsense", local.Now())
	check("nonsense changes nothing", -60*time.Second)
}
