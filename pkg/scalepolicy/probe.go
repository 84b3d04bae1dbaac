// SPDX-License-Identifier: Apache-2.0

package scalepolicy

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// AdmissionResult is admission's result for a requested number of replicas.
type AdmissionResult struct {
	// Admitted is the number that admission admits: the whole target, a part of it, or the current replicas.
	Admitted int32
	// Invalid means that the object is invalid and can never be admitted.
	Invalid bool
	// Message is the reason for admitting less than the target, in one line.
	Message string
}

// Ask asks admission whether replicas may grow to a target. An error means that admission did not respond.
type Ask func(ctx context.Context, target int32) (AdmissionResult, error)

// Growth is the result of an attempt to grow.
type Growth struct {
	// From and To are the replicas before and after.
	From, To int32
	Result   v1alpha1.PoolScaleUpAttemptResult
	// Message is the reason why the result is not Enough, in one line.
	Message string
	// Asked is the number of calls of admission.
	Asked int
}

// Search asks for the whole target. If that is refused, it searches for the greatest number that is admitted. It accepts a part that
// admission suggests. An error means that the context ended; nothing was tried then.
func Search(ctx context.Context, from, to int32, ask Ask) (Growth, error) {
	out := Growth{From: from, To: from, Result: v1alpha1.PoolScaleUpAttemptEnough}
	low, high := from, to // low is admitted; numbers above high are refused
	for target := to; low < high; target = low + (high-low+1)/2 {
		result, err := ask(ctx, target)
		out.Asked++
		switch {
		case err != nil && ctx.Err() != nil:
			return Growth{}, errors.Join(err, ctx.Err())
		case err != nil:
			out.To, out.Result, out.Message = low, v1alpha1.PoolScaleUpAttemptFailed, short(err.Error())
			return out, nil
		case result.Admitted >= target:
			low = target
			continue
		}
		out.Result, out.Message = v1alpha1.PoolScaleUpAttemptInsufficient, short(result.Message)
		if result.Invalid {
			// A smaller number would be invalid too.
			out.To, out.Result = low, v1alpha1.PoolScaleUpAttemptFailed
			return out, nil
		}
		if result.Admitted > low {
			low, high = result.Admitted, result.Admitted
			continue
		}
		high = target - 1
	}
	out.To = low
	return out, nil
}

// Record returns the status after an attempt to grow. status may be nil, and is not modified.
func Record(status *v1alpha1.PoolAutoScalingStatus, growth Growth, now time.Time) *v1alpha1.PoolAutoScalingStatus {
	next := clone(status)
	at := metav1.NewTime(now)
	if growth.To > growth.From {
		next.LastScaleUpTime = &at
	}
	next.LastScaleUpAttemptTime, next.LastScaleUpAttemptResult = &at, growth.Result
	next.ScaleUpErrorMessage = growth.Message
	return next
}

// RecordDown returns the status after replicas were lowered. status may be nil, and is not modified.
func RecordDown(status *v1alpha1.PoolAutoScalingStatus, now time.Time) *v1alpha1.PoolAutoScalingStatus {
	next := clone(status)
	at := metav1.NewTime(now)
	next.LastScaleDownTime = &at
	return next
}

// SaturatedUntil returns when a pool may be probed again after an attempt that was not Enough, or the zero time if it may be probed now.
func SaturatedUntil(status *v1alpha1.PoolAutoScalingStatus, policy *v1alpha1.PoolScaleUpPolicy, now time.Time) time.Time {
	if status == nil || status.LastScaleUpAttemptTime == nil {
		return time.Time{}
	}
	switch status.LastScaleUpAttemptResult {
	case "", v1alpha1.PoolScaleUpAttemptEnough:
		return time.Time{}
	}
	until := now.Add(left(status.LastScaleUpAttemptTime, policy.SaturationCooldownSeconds, now))
	if !until.After(now) {
		return time.Time{}
	}
	return until
}

func clone(status *v1alpha1.PoolAutoScalingStatus) *v1alpha1.PoolAutoScalingStatus {
	if status == nil {
		return &v1alpha1.PoolAutoScalingStatus{}
	}
	return status.DeepCopy()
}
