// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
)

// endedOutbox sends terminal records in batches, and repeats each batch until the hub has stored it.
type endedOutbox struct {
	batch  uint64 // under way; 0 if none is
	sentAt time.Time
}

// next returns the batch to send now, or nil. A batch that is sent again may have grown, and then has another number. The acknowledgement
// of the old number covers the records that were in it.
func (e *endedOutbox) next(now time.Time, sandboxes Sandboxes) *federationv1.Ended {
	if e.batch != 0 && now.Sub(e.sentAt) < endedResend {
		return nil
	}
	for most := endedBatch; ; most /= 2 {
		batch, records := sandboxes.TakeEnded(most)
		if len(records) == 0 {
			e.batch = 0
			return nil
		}
		ended := &federationv1.Ended{Batch: batch, Sandboxes: records}
		if len(records) == 1 || proto.Size(ended) <= link.MaxFrame {
			e.batch, e.sentAt = batch, now
			return ended
		}
	}
}

func (e *endedOutbox) acknowledged(batch uint64, sandboxes Sandboxes) {
	sandboxes.AckEnded(batch)
	if batch >= e.batch {
		e.batch = 0
	}
}
