// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"errors"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
)

// disposed is a problem with what it means for where the claim may go next.
type disposed struct {
	problem     *problem.Error
	disposition federationv1.Disposition
}

func (d *disposed) Error() string { return d.problem.Error() }

func (d *disposed) Unwrap() error { return d.problem }

// Disposition tells what the error of a call means for where a claim may go next. Of an error that says nothing about it
// the outcome is unclear.
func Disposition(err error) federationv1.Disposition {
	if err == nil {
		return federationv1.Disposition_DONE
	}
	var d *disposed
	if errors.As(err, &d) {
		return d.disposition
	}
	return federationv1.Disposition_UNCLEAR
}

// retrySoon is the advice that goes with a refusal for want of Pods.
const retrySoon = 2 * time.Second

// refuse: no Pod was taken, and none will be for this (key, attempt).
func refuse(reason problem.Reason, format string, args ...any) error {
	e := problem.New(reason, format, args...)
	if reason == problem.NoCapacity || reason == problem.QueueFull || reason == problem.Unavailable {
		e.RetryAfter = retrySoon
	}
	return &disposed{problem: e, disposition: federationv1.Disposition_REFUSED}
}

// fault: the request itself cannot be carried out, here or elsewhere.
func fault(e *problem.Error) error {
	return &disposed{problem: e, disposition: federationv1.Disposition_DONE}
}

// doubtful: as doubt, for an error of its own.
func doubtful(e *problem.Error) error {
	return &disposed{problem: e, disposition: federationv1.Disposition_UNCLEAR}
}

func isRefusal(err error) bool { return Disposition(err) == federationv1.Disposition_REFUSED }

// doubt: a Pod may or may not carry the claim.
func doubt(format string, args ...any) error {
	return doubtful(problem.New(problem.OutcomeUnknown, format, args...).WithRetryAfter(retrySoon))
}

// notServing: nothing was looked at.
func notServing() error {
	return &disposed{
		problem:     problem.New(problem.Unavailable, "this worker does not lead its cluster now").WithRetryAfter(retrySoon),
		disposition: federationv1.Disposition_STALE_SESSION,
	}
}

func notFound(format string, args ...any) error {
	return fault(problem.New(problem.NotFound, format, args...))
}
