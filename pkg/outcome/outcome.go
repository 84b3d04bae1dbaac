// SPDX-License-Identifier: Apache-2.0

// Package outcome decides how the end of a sandbox is told, by hub, worker and CLI.
//
// The rule: an ended sandbox is a success with its record, phase ENDED, in every call that names the sandbox or its claim key,
// the call that waited for the sandbox included. A create has one exception: where the sandbox never ran and only a person can
// cure the cause, each create with the key returns that error. So the calls of one key never disagree.
package outcome

import (
	"fmt"
	"strings"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// Failure reasons of a sandbox.
const (
	// HookFailed: a post-start hook failed for good.
	HookFailed = "PostStartHookFailed"
	// HookSecret: a post-start hook refers to a Secret that it cannot have.
	HookSecret = "HookSecretUnavailable"
)

// Preparing is the status detail of a sandbox that runs and waits for what its daemon takes of the claim.
const Preparing = "PreparingEnvironment"

// IsPreparing reports whether a sandbox waits for that alone.
func IsPreparing(s *sandboxv1.Sandbox) bool {
	return s.GetPhase() == sandboxv1.Phase_STARTING && s.GetStatusDetail().GetReason() == Preparing
}

// Started reports whether a sandbox runs, prepared or not.
func Started(s *sandboxv1.Sandbox) bool {
	return s.GetPhase() == sandboxv1.Phase_RUNNING || IsPreparing(s)
}

// failed is the stop reason of a sandbox that did not end as its caller wished.
const failed = "Failed"

// Over reports whether a sandbox can no longer be used.
func Over(s *sandboxv1.Sandbox) bool {
	return s.GetPhase() == sandboxv1.Phase_ENDED || s.GetPhase() == sandboxv1.Phase_STOPPING
}

// Refusal returns the error of a create whose sandbox ended before it ran, for a cause that only a person can cure; nil for any
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

// Cause describes why a sandbox ended.
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
