// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
)

// Bounds of a worker's input other than reports, which package fleet bounds.
const (
	// maxAnswer is the maximum size of a worker's response, plus the envelope.
	maxAnswer = link.MaxFrame + 64<<10
	// maxMessage and maxDetails bound the error in a response, which is returned to the caller.
	maxMessage = 4 << 10
	maxDetails = 16 << 10
	// maxRecord bounds a terminal record: a claim's labels, metadata and hooks take less than half of it.
	maxRecord = 256 << 10
	// maxUnacknowledged bounds the unacknowledged responses in a Hello. A worker keeps 8192.
	maxUnacknowledged = 32_768
	maxSandboxID      = 128
)

// unsendable returns the response to a dispatch that fits no frame. That is the caller's error.
func unsendable(err error) *federationv1.Answer {
	return &federationv1.Answer{Disposition: federationv1.Disposition_DONE,
		Error: calls.ErrorProto(problem.New(problem.Invalid, "the request cannot be sent to a cluster: %w", err))}
}

// bounded returns the response, or an unclear one if it is too large to pass on: a claim may have taken a Pod.
func bounded(a *federationv1.Answer) *federationv1.Answer {
	if size := proto.Size(a); size > maxAnswer || len(a.GetSandbox().GetId()) > maxSandboxID {
		return &federationv1.Answer{Id: a.GetId(), Disposition: federationv1.Disposition_UNCLEAR,
			Error: calls.ErrorProto(problem.New(problem.OutcomeUnknown, "the cluster's response has %d bytes and cannot be passed on", size))}
	}
	e := a.GetError()
	if len(e.GetMessage()) > maxMessage {
		e.Message = strings.ToValidUTF8(e.GetMessage()[:maxMessage], "") + "…"
	}
	size := 0
	for _, d := range e.GetDetails() {
		size += proto.Size(d)
	}
	if size > maxDetails {
		e.Details = nil
	}
	return a
}

// storable returns the records that can be stored. It drops records that no worker can have. They are acknowledged with the others; because
// the worker would send them again unchanged.
func storable(records []*federationv1.EndedSandbox) (kept []*federationv1.EndedSandbox, dropped int) {
	kept = slices.DeleteFunc(slices.Clone(records), func(r *federationv1.EndedSandbox) bool {
		return proto.Size(r) > maxRecord || len(r.GetSandbox().GetId()) > maxSandboxID
	})
	return kept, len(records) - len(kept)
}

var errHello = errors.New("the Hello is not valid")

func checkUnacknowledged(all []*federationv1.Unacknowledged) error {
	if len(all) > maxUnacknowledged {
		return fmt.Errorf("%w: unacknowledged has %d entries, want at most %d", errHello, len(all), maxUnacknowledged)
	}
	for _, u := range all {
		if len(u.GetSandboxId()) > maxSandboxID {
			return fmt.Errorf("%w: unacknowledged names sandbox %s, want at most %d bytes", errHello, segment.Quote(u.GetSandboxId()), maxSandboxID)
		}
	}
	return nil
}
