// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestHeldBack(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, message string
		want            time.Duration
		held            bool
	}{
		"by default":        {"CrashLoopBackOff", "back-off 10s restarting failed container=main pod=x_default(1)", 10 * time.Second, true},
		"for minutes":       {"CrashLoopBackOff", "back-off 5m0s restarting failed container=main pod=x_default(1)", 5 * time.Minute, true},
		"for a moment":      {"CrashLoopBackOff", "back-off 1s restarting failed container=main pod=x_default(1)", time.Second, true},
		"in other words":    {"CrashLoopBackOff", "waiting", 10 * time.Second, true},
		"not a duration":    {"CrashLoopBackOff", "back-off long", 10 * time.Second, true},
		"by a failing pull": {"ImagePullBackOff", "Back-off pulling image", 0, false},
	} {
		pod := idlePod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: tc.reason, Message: tc.message},
			}
		})
		if got, held := HeldBack(pod); got != tc.want || held != tc.held {
			t.Errorf("%s: %s, %v, want %s, %v", name, got, held, tc.want, tc.held)
		}
	}
	if _, held := HeldBack(idlePod()); held {
		t.Error("a running container is held back")
	}
}
