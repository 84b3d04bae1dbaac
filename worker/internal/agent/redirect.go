// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"time"

	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/validate"
)

const (
	// partingPause is how often a redirected stream checks for calls under way, and partingTime how long it waits for them. If a claim without
	// a key takes longer, its sandbox is released and the claim moves to another stream, as when a stream breaks.
	partingPause = 50 * time.Millisecond
	partingTime  = 2 * time.Second
)

// parting is the end of a stream that the hub redirected to another replica, or that ends for a new certificate. The zero value is a stream
// that stays.
type parting struct {
	reason error
	until  time.Time
	ticker clock.Ticker
}

func (p *parting) begin(on clock.WithTicker, reason error) {
	if p.ticker == nil {
		p.reason, p.until, p.ticker = reason, on.Now().Add(partingTime), on.NewTicker(partingPause)
	}
}

func (p *parting) stop() {
	if p.ticker != nil {
		p.ticker.Stop()
	}
}

func (p *parting) tick() <-chan time.Time {
	if p.ticker == nil {
		return nil
	}
	return p.ticker.C()
}

// over reports whether the stream can end: no call is under way, or the time is up.
func (p *parting) over(now time.Time, under int) bool { return under == 0 || !now.Before(p.until) }

// wrap adds the reason of the parting to an error, for package link.
func (p *parting) wrap(err error) error {
	if p.ticker == nil || err == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", p.reason, err)
}

// redirected returns the reason of a stream that the hub redirected to another replica.
func redirected(by *federationv1.Redirect) error {
	return fmt.Errorf("%w: %s", link.ErrRedirected, validate.Clip(by.GetReason()))
}
