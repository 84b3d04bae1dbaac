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
	// present is how long a connection has to last to prove that the hub was up: time away begins at its end.
	present = time.Second
	// A restarted hub is back within seconds, while doubling exceeds them. So the pause grows no faster than the time without a
	// hub: no worker is away for more than a quarter longer than the hub was, or than shortOutage.
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

// delay is the wait before the next attempt, after the given number of failures in a row and the given time without a hub: full
// jitter, so that workers that were cut off together do not return together.
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
