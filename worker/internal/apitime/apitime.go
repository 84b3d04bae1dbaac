// SPDX-License-Identifier: Apache-2.0

package apitime

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"navix.sh/atoll/worker/internal/boottime"
)

// slack is how far a Date may lag behind before it means that the server's clock is slower, or was set back: the header has
// whole seconds.
const slack = 2 * time.Second

// Machine is where a process runs.
type Machine struct {
	// Boot names this start of the machine; empty: unknown.
	Boot string
	// Up is how long ago that was, by a clock that nobody sets.
	Up func() time.Duration
}

// Clock is the API server's clock. It is safe for concurrent use.
type Clock struct {
	local   clock.PassiveClock
	machine Machine

	mu        sync.Mutex
	base      time.Time // what the server's clock showed at at; zero before the first answer
	at        time.Time // local, with its monotonic reading
	steps     steps
	inherited bool // an earlier process' steps are among them, or there was none
}

// New returns a clock that shows local time until an answer was seen.
func New(local clock.PassiveClock) *Clock {
	return NewOn(Machine{Boot: boottime.ID(), Up: boottime.Now}, local)
}

// NewOn is New on another machine.
func NewOn(on Machine, local clock.PassiveClock) *Clock { return &Clock{local: local, machine: on} }

// Now is what the API server's clock shows. It is for what is written down; how long ago that was, Since tells.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shown()
}

// Since is how long ago the API server's clock showed t, or less, however it was stepped since. A time that lies ahead is now.
func (c *Clock) Since(t time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steps.since(t, c.shown())
}

// shown is Now. The lock is held.
func (c *Clock) shown() time.Time {
	if c.base.IsZero() {
		return c.local.Now().UTC().Round(0)
	}
	return c.base.Add(c.local.Since(c.at))
}

// Watch makes every client of cfg feed the clock.
func (c *Clock) Watch(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &observer{next: next, clock: c} })
}

// observe takes the header Date of a response to a request that was sent at asked, by the local clock. Dates move the clock
// forward as they come; only one that is clearly behind sets it back, which one is not that was only long on its way.
func (c *Clock) observe(header string, asked time.Time) {
	date, err := http.ParseTime(header)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	shown, took := c.shown(), c.local.Since(asked)
	if first := c.base.IsZero(); !first && !shown.Before(date) && !shown.After(date.Add(slack+took)) {
		return
	} else if ahead := date.Sub(shown); !first && (ahead >= leastStep || -ahead >= leastStep+took) {
		c.steps.add(shown, date)
	}
	c.base, c.at = date.UTC(), c.local.Now()
}

type observer struct {
	next  http.RoundTripper
	clock *Clock
}

func (o *observer) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := o.clock.local.Now()
	resp, err := o.next.RoundTrip(r)
	if err == nil {
		o.clock.observe(resp.Header.Get("Date"), asked)
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find what it looks for in the transport below.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }
