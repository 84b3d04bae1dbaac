// SPDX-License-Identifier: Apache-2.0

package apitime

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// slack is how far a Date may lag behind before it means that the server's clock was set back: the header has whole
// seconds, and an answer takes a while.
const slack = 2 * time.Second

// Clock is the API server's clock. It is safe for concurrent use.
type Clock struct {
	local clock.PassiveClock

	mu   sync.Mutex
	base time.Time // what the server's clock showed at since; zero before the first answer
	at   time.Time // local, with its monotonic reading
}

// New returns a clock that shows local time until an answer was seen.
func New(local clock.PassiveClock) *Clock { return &Clock{local: local} }

// Now is the API server's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base.IsZero() {
		return c.local.Now().UTC().Round(0)
	}
	return c.base.Add(c.local.Since(c.at))
}

// Since is how long ago t was, by the API server's clock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Watch makes every client of cfg feed the clock.
func (c *Clock) Watch(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &observer{next: next, clock: c} })
}

// observe takes the header Date of a response. Dates move the clock forward as they come; only one that is clearly behind
// sets it back.
func (c *Clock) observe(header string) {
	date, err := http.ParseTime(header)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	shown := c.base.Add(c.local.Since(c.at))
	if c.base.IsZero() || shown.Before(date) || shown.After(date.Add(slack)) {
		c.base, c.at = date.UTC(), c.local.Now()
	}
}

type observer struct {
	next  http.RoundTripper
	clock *Clock
}

func (o *observer) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if err == nil {
		o.clock.observe(resp.Header.Get("Date"))
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find what it looks for in the transport below.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }
