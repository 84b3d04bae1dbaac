// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// unsaidBackoff is the first back-off of a kubelet with default settings.
const unsaidBackoff = 10 * time.Second

// HeldBack reports whether the kubelet delays a restart of the first container, and for how long each time. A swap to an image
// that the Pod ran before counts as a restart.
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
