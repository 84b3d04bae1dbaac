// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

type claims struct {
	t *testing.T
	f *Fleet
	o *owner
}

func newClaims(t *testing.T) *claims {
	f := newFleet(t, &memoryRegistry{})
	return &claims{t: t, f: f, o: connected(t, f, "east", pool(env(0), 3))}
}

func (c *claims) reserve() *Reservation {
	c.t.Helper()
	view, d := c.f.pick(env(0), &router.Request{}, 0)
	if !d.OK() {
		c.t.Fatalf("nothing to pick: %s", d.Reason)
	}
	r := c.f.Reserve(view, d.Index)
	return &r
}

// change reports so many idle Pods, and so many of claims that are not answered.
func (c *claims) change(idle, claiming int32) {
	c.t.Helper()
	s := pool(env(0), idle)
	s.Members()[0].SetClaiming(claiming)
	c.o.change(s)
}

func (c *claims) want(inFlight int32) {
	c.t.Helper()
	e := c.f.Explain(&router.Request{}, c.f.View(env(0)))
	if got := e.Candidates[0].InFlight; got != inFlight {
		c.t.Fatalf("%d claims in flight, want %d", got, inFlight)
	}
}

func TestInFlight(t *testing.T) {
	t.Run("a pick sees the reservations before it", func(t *testing.T) {
		c := newClaims(t)
		for range 3 {
			c.reserve()
		}
		if _, d := c.f.pick(env(0), &router.Request{}, 0); d.Tier != router.CanQueue {
			t.Errorf("with all idle Pods reserved the tier is %s", d.Tier)
		}
		if _, d := c.f.pick(env(0), &router.Request{NoQueue: true}, 0); d.Reason != router.NoIdlePod {
			t.Errorf("with all idle Pods reserved and no queueing: %s", d.Reason)
		}
	})
	t.Run("a cancelled claim is not deducted, whatever comes after", func(t *testing.T) {
		c := newClaims(t)
		r := c.reserve()
		c.want(1)
		r.Cancel()
		r.Cancel()
		r.Settle(99)
		c.want(0)
		var zero Reservation
		zero.Cancel()
		zero.Settle(1)
	})
	t.Run("a settled claim is deducted until the report that covers it", func(t *testing.T) {
		c := newClaims(t)
		r := c.reserve()
		r.Settle(3)
		r.Cancel()
		c.want(1)
		c.o.change(pool(env(0), 2)) // sequence 2
		c.want(1)
		c.o.change(pool(env(0), 1))
		c.want(0)
	})
	t.Run("a claim that is covered already is not deducted", func(t *testing.T) {
		c := newClaims(t)
		r := c.reserve()
		c.o.change(pool(env(0), 2))
		r.Settle(2)
		c.want(0)
	})
	t.Run("a claim that has its Pod is deducted once", func(t *testing.T) {
		c := newClaims(t)
		first := c.reserve()
		c.change(2, 1)
		c.want(0)
		second, third := c.reserve(), c.reserve()
		if second.Overdrawn() || third.Overdrawn() {
			t.Error("a Pod that is idle counts as reserved")
		}
		if _, d := c.f.pick(env(0), &router.Request{NoQueue: true}, 0); d.Reason != router.NoIdlePod {
			t.Errorf("with all idle Pods reserved and no queueing: %s", d.Reason)
		}
		third.Cancel()
		second.Cancel()
		first.Settle(3)
		c.want(0)
		c.change(2, 0)
		c.want(0)
	})
	t.Run("a report that does not count covers nothing", func(t *testing.T) {
		c := newClaims(t)
		c.reserve().Settle(2)
		chunks := c.o.completeReport(1)
		chunks[0].Last = false
		c.o.deliver(chunks)
		c.want(1)
	})
	t.Run("a new incarnation covers everything", func(t *testing.T) {
		c := newClaims(t)
		c.reserve().Settle(3)
		open := c.reserve()
		c.o.newTerm("second")
		c.o.connect(c.f)
		c.want(1)
		open.Settle(77) // a response from the old incarnation
		c.want(0)
	})
	t.Run("a worker with nothing to report covers by its heartbeats", func(t *testing.T) {
		c := newClaims(t)
		c.reserve().Settle(2)
		for range coverBeats {
			c.o.heartbeat()
			c.want(1)
		}
		c.o.heartbeat()
		c.want(0)
	})
	t.Run("a member that moves keeps its claims", func(t *testing.T) {
		c := newClaims(t)
		r := c.reserve()
		s := pool(env(0), 3)
		s.With(append([]segment.Member{{Name: "a-new-one", State: segment.Missing}}, s.Members()...)...)
		c.o.change(s)
		e := c.f.Explain(&router.Request{}, c.f.View(env(0)))
		for _, got := range e.Candidates {
			want := map[string]int32{"pool": 1, "a-new-one": 0}[got.Member().Name]
			if got.InFlight != want {
				t.Errorf("%s has %d claims in flight, want %d", got.Member().Name, got.InFlight, want)
			}
		}
		r.Cancel()
		c.o.change(pool(env(0), 3))
		c.want(0)
	})
	t.Run("a member that went and came back does not inherit", func(t *testing.T) {
		c := newClaims(t)
		r := c.reserve()
		c.o.remove(env(0))
		c.o.change(pool(env(0), 3))
		c.want(0)
		r.Cancel()
		c.want(0)
	})
}

// However far ahead responses claim to be covered, what is kept for them is bounded by members.
func TestI10DeductionsAreBounded(t *testing.T) {
	c := newClaims(t)
	for n := range uint64(1000) {
		view := c.f.View(env(0))
		r := c.f.Reserve(view, 0)
		r.Settle(n + 2)
	}
	if got := len(c.f.cluster("east").inFlight.waiting); got > coverWindow {
		t.Errorf("%d deductions are kept", got)
	}
	c.want(1000)
	for range coverWindow {
		c.o.change(pool(env(0), 1), pool(env(1), 1))
		c.o.remove(env(1))
	}
	c.want(0)
}
