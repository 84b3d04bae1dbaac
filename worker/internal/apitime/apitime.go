// SPDX-License-Identifier: Apache-2.0

package apitime

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

const (
	// slack is how far a Date may lag before it means that the server's clock is slower, or was set back. The header has whole seconds.
	slack = 2 * time.Second
	// unevenness is the inverse of the maximum difference between the rates of two clocks: 500 ppm, the maximum by which NTP slews one.
	unevenness = 2000
)

// Machine is the machine that a process runs on.
type Machine struct {
	// Boot identifies this start of the machine; empty if unknown.
	Boot string
	// Up returns how long ago the machine started, by a clock that is never set.
	Up func() time.Duration
}

// Clock is the API server's clock. It is safe for concurrent use.
type Clock struct {
	local   clock.PassiveClock
	machine Machine

	mu        sync.Mutex
	base      time.Time     // the server's clock at at; zero before the first response
	at        time.Duration // of the machine's uptime
	seen      time.Duration // time of the last response
	steps     steps
	drift     time.Duration // how far base was moved since even, without a step
	even      time.Duration
	inherited bool // the steps include those of an earlier process, if there was one
}

// New returns a clock that shows local time until the first response.
func New(local clock.PassiveClock) *Clock {
	return NewOn(Machine{Boot: BootID(), Up: UpTime}, local)
}

// NewOn is New on another machine.
func NewOn(on Machine, local clock.PassiveClock) *Clock { return &Clock{local: local, machine: on} }

// Now returns the API server's time. Use it for written times, and Since for their age.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shown()
}

// Since returns how long ago the API server's clock showed t, or less, despite any steps since. A time in the future counts as now.
func (c *Clock) Since(t time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steps.since(t, c.shown())
}

// Ago returns what the API server's clock showed the given time ago.
func (c *Clock) Ago(age time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steps.ago(age, c.shown())
}

// shown is Now. The caller holds the lock.
func (c *Clock) shown() time.Time {
	if c.base.IsZero() {
		return c.local.Now().UTC().Round(0)
	}
	return c.base.Add(c.machine.Up() - c.at)
}

// Watch makes every client of cfg feed the clock.
func (c *Clock) Watch(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &observer{next: next, clock: c} })
}

// observe handles the Date header of a response to a request that was sent at asked. Dates move the clock forward as they arrive. Only a
// Date that is clearly behind sets it back; the Date of a slow response is not.
func (c *Clock) observe(header string, asked time.Duration) {
	date, err := http.ParseTime(header)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	up := c.machine.Up()
	unseen := up - c.seen
	c.seen = up
	if c.base.IsZero() {
		c.base, c.at, c.even = date.UTC(), up, up
		return
	}
	ahead := date.Sub(c.shown())
	if ahead <= 0 && -ahead <= slack+up-asked {
		return
	}
	c.base, c.at = date.UTC(), up
	c.drift += ahead
	if c.drift.Abs() >= leastStep+(up-c.even)/unevenness {
		c.steps.add(date.Add(-c.drift), date, unseen+leastStep)
		c.drift, c.even = 0, up
	}
}

type observer struct {
	next  http.RoundTripper
	clock *Clock
}

func (o *observer) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := o.clock.machine.Up()
	resp, err := o.next.RoundTrip(r)
	if err == nil {
		o.clock.observe(resp.Header.Get("Date"), asked)
	}
	return resp, err
}

// WrappedRoundTripper gives client-go access to the underlying transport.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }
