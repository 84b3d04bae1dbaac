// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"time"
)

// Bounds of reconnecting.
const (
	MinBackoff = 200 * time.Millisecond
	MaxBackoff = 30 * time.Second
	// settled is how long a stream has to last for the next failure to count as the first.
	settled = 10 * time.Second
	// present is how long a connection has to last to prove that the hub was up. The outage is then counted from the end of that connection.
	present = time.Second
	// A restarted hub is back within seconds, but exponential backoff soon exceeds that. So the pause is limited to a quarter of the outage so
	// far, or to shortOutage if that is longer.
	shortOutage = 2 * time.Second
	outageShare = 4
)

// RetryAfterError is an error after which a retry before After is useless.
type RetryAfterError struct {
	Err   error
	After time.Duration
}

func (e *RetryAfterError) Error() string { return e.Err.Error() }

func (e *RetryAfterError) Unwrap() error { return e.Err }

// delay returns the wait before the next attempt, after the given number of failures in a row and the given time without a hub. It uses
// full jitter, so that workers that were disconnected together do not reconnect together.
func delay(failures int, away time.Duration, err error, random func(n int64) int64) time.Duration {
	ceiling := min(MaxBackoff, max(shortOutage, away/outageShare))
	if shift := max(failures-1, 0); shift < 8 {
		ceiling = min(ceiling, MinBackoff<<shift)
	}
	wait := time.Duration(random(int64(ceiling)))
	var retry *RetryAfterError
	if errors.As(err, &retry) && retry.After > 0 {
		wait += min(retry.After, MaxBackoff)
	}
	return wait
}
