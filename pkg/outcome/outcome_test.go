// SPDX-License-Identifier: Apache-2.0

package outcome_test

import (
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
)

// The end of a sandbox is a record, unless it never ran and only a person can cure the cause.
func TestRefusal(t *testing.T) {
	for name, tc := range map[string]struct {
		stop, failure string
		want          problem.Reason // empty: none
	}{
		"its hook failed":          {"Failed", "PostStartHookFailed", problem.Misconfigured},
		"its hook has no Secret":   {"Failed", "HookSecretUnavailable", problem.Misconfigured},
		"its image is not there":   {"Failed", "ImagePullBackOff", problem.Invalid},
		"its node went":            {"Failed", "NodeLost", ""},
		"it took too long":         {"Failed", "StartupTimeout", ""},
		"released while it failed": {"Released", "PostStartHookFailed", ""},
		"done":                     {"Completed", "", ""},
		"live":                     {"", "", ""},
	} {
		s := &sandboxv1.Sandbox{Id: "x", Phase: sandboxv1.Phase_ENDED, StopReason: tc.stop, FailureReason: tc.failure, FailureMessage: "why"}
		got := outcome.Refusal(s)
		if (got == nil) != (tc.want == "") || got != nil && (got.Reason != tc.want || got.RetryAfter != 0) {
			t.Errorf("%s: %v, want %q", name, got, tc.want)
		}
	}
	if got := outcome.Cause(&sandboxv1.Sandbox{StopReason: "Failed", FailureMessage: "m"}); got != "Failed: m" {
		t.Errorf("cause %q", got)
	}
}
