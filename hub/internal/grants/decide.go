// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"math"
	"time"
)

// bucket is a token bucket. It fills at a rate, up to the tokens of one second, and at least one.
type bucket struct {
	tokens float64
	at     time.Time
}

// burst returns the capacity of a bucket.
func burst(rate float64) float64 { return math.Max(1, rate) }

// newBucket returns a full bucket.
func newBucket(rate float64, now time.Time) bucket { return bucket{burst(rate), now} }

// take takes a token, or returns the time until there is one. A clock that goes back adds no tokens.
func (b bucket) take(rate float64, now time.Time) (next bucket, wait time.Duration) {
	next = b.filled(rate, now)
	if next.tokens >= 1 {
		next.tokens--
		return next, 0
	}
	return next, max(1, time.Duration((1-next.tokens)/rate*float64(time.Second))) // a token that is due within a nanosecond is not there yet
}

func (b bucket) filled(rate float64, now time.Time) bucket {
	if past := now.Sub(b.at); past > 0 {
		b.tokens += past.Seconds() * rate
	}
	b.tokens, b.at = math.Min(b.tokens, burst(rate)), now
	return b
}

// share returns a replica's part of a rate.
func share(rate float64, replicas int) float64 { return rate / float64(max(1, replicas)) }

// window converts a rate to a quota for a number of seconds, in whole numbers.
func window(rate float64) (quota, seconds int) {
	if rate >= 1 {
		return int(rate), 1
	}
	return 1, int(math.Ceil(1 / rate))
}

// within reports whether one more is within a limit.
func within(used, limit int32) bool { return limit == 0 || used < limit }
