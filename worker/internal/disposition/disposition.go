// SPDX-License-Identifier: Apache-2.0

// Package disposition builds the errors of claims and sandboxes: each is a *problem.Error with a disposition, which says where
// the claim may go next.
package disposition

import (
	"errors"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
)

// disposed is a problem with its disposition.
type disposed struct {
	problem     *problem.Error
	disposition federationv1.Disposition
}

func (d *disposed) Error() string { return d.problem.Error() }

func (d *disposed) Unwrap() error { return d.problem }

// Of returns the disposition of a call's error. Without one the outcome is unclear.
func Of(err error) federationv1.Disposition {
	if err == nil {
		return federationv1.Disposition_DONE
	}
	var d *disposed
	if errors.As(err, &d) {
		return d.disposition
	}
	return federationv1.Disposition_UNCLEAR
}

// Refused reports whether an error is a refusal.
func Refused(err error) bool { return Of(err) == federationv1.Disposition_REFUSED }

// Refuse returns a refusal: no Pod was taken, and none will be for this attempt of the key.
func Refuse(reason problem.Reason, format string, args ...any) error {
	e := problem.New(reason, format, args...)
	return Refusal(e.WithRetryAfter(reason.RetryAfter()))
}

// Refusal is Refuse with the caller's problem.
func Refusal(e *problem.Error) error {
	return &disposed{problem: e, disposition: federationv1.Disposition_REFUSED}
}

// Fault returns an error of the request itself, which cannot be carried out, here or elsewhere.
func Fault(e *problem.Error) error {
	return &disposed{problem: e, disposition: federationv1.Disposition_DONE}
}

// NotFound returns a Fault.
func NotFound(format string, args ...any) error {
	return Fault(problem.New(problem.NotFound, format, args...))
}

// Doubt returns an error after which a Pod may or may not carry the claim.
func Doubt(format string, args ...any) error {
	return Doubtful(problem.New(problem.OutcomeUnknown, format, args...).WithRetryAfter(problem.RetrySoon))
}

// Doubtful is Doubt with the caller's problem.
func Doubtful(e *problem.Error) error {
	return &disposed{problem: e, disposition: federationv1.Disposition_UNCLEAR}
}

// NotServing returns the error of a worker that does not lead, and has therefore checked nothing.
func NotServing() error {
	return &disposed{
		problem:     problem.New(problem.Unavailable, "this worker does not lead its cluster now").WithRetryAfter(problem.RetrySoon),
		disposition: federationv1.Disposition_STALE_SESSION,
	}
}
