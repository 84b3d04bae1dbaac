// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
)

func TestStartFailure(t *testing.T) {
	failed := string(v1alpha1.SandboxStopReasonFailed)
	for name, c := range map[string]struct {
		record *sandboxv1.Sandbox
		want   problem.Reason
	}{
		"by its startup timeout":      {&sandboxv1.Sandbox{StopReason: failed, FailureReason: StartupTimeout}, problem.Deadline},
		"by its node":                 {&sandboxv1.Sandbox{StopReason: failed, FailureReason: "NodeLost"}, problem.Unavailable},
		"by a hook":                   {&sandboxv1.Sandbox{StopReason: failed, FailureReason: outcome.HookFailed}, problem.Misconfigured},
		"while its Pod is deleted":    {&sandboxv1.Sandbox{}, problem.Unavailable},
		"by an image that is refused": {&sandboxv1.Sandbox{StopReason: failed, FailureReason: "ErrImagePull"}, problem.Invalid},
	} {
		if got := problem.FromError(startFailure("s", c.record)).Reason; got != c.want {
			t.Errorf("ended %s: got %s, want %s", name, got, c.want)
		}
	}
}
