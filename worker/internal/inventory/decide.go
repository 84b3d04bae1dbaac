// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"errors"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"navix.sh/atoll/worker/internal/sandbox"
)

// Result is the meaning of the API server's response to a write.
type Result string

// The results.
const (
	Written Result = "Written"
	// Lost: the Pod has changed since it was read.
	Lost Result = "Lost"
	// NoPod: the Pod no longer exists.
	NoPod Result = "Gone"
	// Faulty: the request is invalid for any Pod.
	Faulty Result = "Faulty"
	// Denied: the worker may not write, or not in this way. This try wrote nothing.
	Denied Result = "Denied"
	// Unclear: the write may have happened, may still happen, or may never happen.
	Unclear Result = "Unclear"
)

// ResultOf returns the result of a JSON patch. A failed test is a 422 without causes, an invalid object a 422 with causes. Any
// other error is Unclear, which is safe.
func ResultOf(err error) Result {
	switch {
	case err == nil:
		return Written
	case apierrors.IsNotFound(err), apierrors.IsGone(err):
		return NoPod
	case apierrors.IsConflict(err):
		return Lost
	case apierrors.IsInvalid(err):
		if hasCauses(err) {
			return Faulty
		}
		return Lost
	case apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsUnsupportedMediaType(err):
		return Faulty
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err), apierrors.IsTooManyRequests(err):
		return Denied
	default:
		return Unclear
	}
}

func hasCauses(err error) bool {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		return false
	}
	details := api.Status().Details
	return details != nil && len(details.Causes) > 0
}

// outranks reports whether a holds the key that a and b have in common, so that b ends.
func outranks(a, b *sandbox.Claim) bool {
	return cmp.Or(
		cmp.Compare(a.Attempt, b.Attempt),
		cmp.Compare(a.Incarnation, b.Incarnation),
		cmp.Compare(a.ID, b.ID),
	) > 0
}

// versionOf parses a resourceVersion. Those of one cluster are ordered.
func versionOf(pod *corev1.Pod) uint64 {
	n, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
