// SPDX-License-Identifier: Apache-2.0

// Package outcome decides how hub, worker and CLI report the end of a sandbox.
//
// The rule: every call that names an ended sandbox or its claim key succeeds and returns its record with phase ENDED, including the call
// that waited for the sandbox. There is one exception, for a create: if the sandbox never ran and only a person can fix the cause, each
// create with the key returns that error. So the calls of one key never disagree.
package outcome

import (
	"fmt"
	"strings"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// Failure reasons of a sandbox.
const (
	// HookFailed: a post-start hook failed permanently.
	HookFailed = "PostStartHookFailed"
	// HookSecret: a post-start hook refers to a Secret that it cannot use.
	HookSecret = "HookSecretUnavailable"
)

// Preparing is the status detail of a started sandbox whose daemon has not received the data of the claim yet.
const Preparing = "PreparingEnvironment"

// IsPreparing reports whether a sandbox only waits for that.
func IsPreparing(s *sandboxv1.Sandbox) bool {
	return s.GetPhase() == sandboxv1.Phase_STARTING && s.GetStatusDetail().GetReason() == Preparing
}

// Started reports whether a sandbox runs, whether its preparation has ended or not.
func Started(s *sandboxv1.Sandbox) bool {
	return s.GetPhase() == sandboxv1.Phase_RUNNING || IsPreparing(s)
}

// failed is the stop reason of a sandbox that did not end as its caller wanted.
const failed = "Failed"

// Over reports whether a sandbox can no longer be used.
func Over(s *sandboxv1.Sandbox) bool {
	return s.GetPhase() == sandboxv1.Phase_ENDED || s.GetPhase() == sandboxv1.Phase_STOPPING
}

// Refusal returns the error of a create whose sandbox ended before it ran, for a cause that only a person can fix. It returns nil for any
// other sandbox.
func Refusal(s *sandboxv1.Sandbox) *problem.Error {
	if s.GetStopReason() != failed {
		return nil
	}
	reason := s.GetFailureReason()
	switch {
	case BadImage(reason):
		e := problem.InvalidField("image", s.GetImage(), "an image that the cluster can pull")
		e.Message = fmt.Sprintf("sandbox %s did not start: %s: %s", s.GetId(), reason, s.GetFailureMessage())
		return e
	case reason == HookFailed, reason == HookSecret:
		return problem.New(problem.Misconfigured, "sandbox %s did not start: %s: %s", s.GetId(), reason, s.GetFailureMessage())
	}
	return nil
}

// Cause describes the reason why a sandbox ended.
func Cause(s *sandboxv1.Sandbox) string {
	var parts []string
	for _, part := range []string{s.GetStopReason(), s.GetFailureReason(), s.GetFailureMessage()} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// BadImage reports whether a failure reason means that the image cannot be pulled.
func BadImage(reason string) bool {
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError":
		return true
	}
	return false
}
