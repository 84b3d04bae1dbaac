// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"context"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
)

// More conversations are opened at a time while that makes none of them slower, however far away the API server is.
func TestI14OpeningsAreFewWhileTheyAreSlow(t *testing.T) {
	near, far := 10*time.Millisecond, 300*time.Millisecond
	for _, c := range []struct {
		name string
		took []time.Duration
		want int
	}{
		{"the first", nil, 1},
		{"a quick one", []time.Duration{near}, 2},
		{"near", []time.Duration{near, near, near, near, near, near, near, near, near}, 8},
		{"far", []time.Duration{far, far, far + near, far, far, far, far, far, far}, 8},
		{"slower", []time.Duration{near, near, near, near, near, near, near, 3 * near}, 4},
		{"slower and slower", []time.Duration{near, near, near, near, near, near, near, 3 * near, 3 * near, 3 * near, 3 * near}, 1},
		{"again quick", []time.Duration{near, 3 * near, 3 * near, near, near}, 3},
	} {
		l := &limit{atOnce: 1}
		for _, d := range c.took {
			l.took(time.Unix(1000, 0), d)
		}
		if l.atOnce != c.want {
			t.Errorf("%s: %d at a time, want %d", c.name, l.atOnce, c.want)
		}
	}
}

// An API server that has moved away is compared with what it was for ten minutes at most.
func TestOpeningsForget(t *testing.T) {
	l, now := &limit{atOnce: 1}, time.Unix(1000, 0)
	l.took(now, time.Millisecond)
	for n, want := range []int{1, 2, 3} {
		now = now.Add(openingPeriod)
		if l.took(now, time.Second); l.atOnce != want {
			t.Errorf("%d periods later: %d at a time, want %d", n+1, l.atOnce, want)
		}
	}
}

// Each account has its own turns, and a slow kind does not slow another.
func TestI14OpeningsOfAnAccountTakeTurns(t *testing.T) {
	o := newOpenings(clocktesting.NewFakePassiveClock(time.Unix(1000, 0)))
	port := &federationv1.ReachCall{What: &federationv1.ReachCall_Port{Port: &federationv1.PortReach{Port: 80}}}
	exec := &federationv1.ReachCall{What: &federationv1.ReachCall_Exec{Exec: &federationv1.ExecReach{}}}
	for range mostOpenings {
		o.took(port, 10*time.Millisecond)
		o.took(exec, 100*time.Millisecond)
	}
	for range mostOpenings / 2 {
		for _, what := range []*federationv1.ReachCall{port, exec} {
			_, err := o.begin(t.Context(), "mallory", what)
			must.Succeed(t, err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.begin(over, "mallory", port); err == nil {
		t.Errorf("%d conversations of an account are being opened", mostOpenings+1)
	}
	_, err := o.begin(t.Context(), "ann", exec)
	must.Succeed(t, err)
}
