// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// endedOutbox sends terminal records, a batch at a time, again and again until the hub has stored it.
type endedOutbox struct {
	batch   uint64
	records []*federationv1.EndedSandbox // under way
	sentAt  time.Time
}

// next is the batch to send now, or nil.
func (e *endedOutbox) next(now time.Time, claims Claims) *federationv1.Ended {
	switch {
	case len(e.records) == 0:
		if e.records = claims.TakeEnded(endedBatch); len(e.records) == 0 {
			return nil
		}
		e.batch++
	case now.Sub(e.sentAt) < endedResend:
		return nil
	}
	e.sentAt = now
	return &federationv1.Ended{Batch: e.batch, Sandboxes: e.records}
}

// acknowledged takes the word for the batch under way only: an older batch was sent twice.
func (e *endedOutbox) acknowledged(batch uint64, claims Claims) {
	if batch == e.batch && len(e.records) > 0 {
		claims.AckEnded(e.records)
		e.records = nil
	}
}
