// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// leastWindow is the protection window of autoscaled pools where it is shorter: the autoscaler, which raises replicas
	// again when a marked Pod was claimed at the last moment, is not to find another one deleted in its place.
	leastWindow = time.Second
	// followUp is how long after the window the autoscaler may take to lower replicas. A mark that nobody follows up is
	// taken off: the autoscaler may have been turned off, or have died.
	followUp = 30 * time.Second
)

// window is how long a marked Pod can be claimed.
func (s *Snapshot) window() time.Duration {
	if s.Autoscaled {
		return max(s.Window, leastWindow)
	}
	return s.Window
}

// unmark keeps Pods that were marked and are not too many. The autoscaler marks Pods first and lowers replicas after the
// window, so its marks stay that long.
func unmark(s *Snapshot, pods []*corev1.Pod, d *Decision) {
	for _, pod := range pods {
		if marking(pod) == "" || s.Stale[pod.UID] {
			continue
		}
		reason := ReasonReplicasRaised
		if s.Autoscaled {
			if left := s.window() + followUp - s.Ages[pod.UID]; left > 0 {
				d.wake(left)
				continue
			}
			reason = ReasonNotFollowedUp
		}
		d.add(Action{Verb: Unmark, Pod: pod, Reason: reason})
	}
}
