// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// unsaidBackoff is what a kubelet with its defaults begins with.
const unsaidBackoff = 10 * time.Second

// HeldBack reports whether the kubelet makes the first container wait before it starts again, and how long at a time. A
// container that is swapped to an image that the Pod ran before counts as starting again.
func HeldBack(pod *corev1.Pod) (time.Duration, bool) {
	cs := mainStatus(pod)
	if cs == nil || cs.State.Waiting == nil || cs.State.Waiting.Reason != "CrashLoopBackOff" {
		return 0, false
	}
	// "back-off 10s restarting failed container=main pod=…"
	if said, found := strings.CutPrefix(cs.State.Waiting.Message, "back-off "); found {
		said, _, _ = strings.Cut(said, " ")
		if d, err := time.ParseDuration(said); err == nil && d >= 0 {
			return d, true
		}
	}
	return unsaidBackoff, true
}
