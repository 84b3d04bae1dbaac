// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// followUp is how long after the window the autoscaler may take to lower replicas. Later the mark is removed; because the
	// autoscaler may have been disabled, or have died.
	followUp = 30 * time.Second
	// ownMarks is how long an autoscaled pool must have too many Pods before it chooses some itself. The autoscaler marks first,
	// so too many unmarked Pods mean that one was claimed at the last moment: replicas will be raised again, and no other Pod
	// must go in its place. If they are not raised, another writer has lowered them, and does so again.
	ownMarks = 10 * time.Second
	// surplusStage is the timeline's key for the surplus, among those of Pods.
	surplusStage types.UID = "surplus"
)

// surplusOf names the stage that begins whenever replicas fall below the number of Pods; "" while they do not.
func surplusOf(s *snapshot) string {
	held := 0
	for _, pod := range s.Pods {
		if pod.DeletionTimestamp == nil && holdsReplica(pod) {
			held++
		}
	}
	if !s.Autoscaled || s.Pool == nil || held <= int(s.Pool.Spec.Replicas) {
		return ""
	}
	return fmt.Sprintf("surplus/%d", s.Pool.Spec.Replicas)
}

// choosesItself reports whether the pool itself marks surplus Pods.
func choosesItself(s *snapshot, d *decision) bool {
	if !s.Autoscaled {
		return true
	}
	if left := ownMarks - s.Ages[surplusStage]; left > 0 {
		d.wake(left)
		return false
	}
	return true
}

// unmark keeps marked Pods that are no longer too many. The autoscaler marks Pods first and lowers replicas after the window, so
// its marks stay that long.
func unmark(s *snapshot, pods []*corev1.Pod, d *decision) {
	for _, pod := range pods {
		if marking(pod) == "" || s.Stale[pod.UID] {
			continue
		}
		why := reasonReplicasRaised
		if s.Autoscaled {
			if left := s.Window + followUp - s.Ages[pod.UID]; left > 0 {
				d.wake(left)
				continue
			}
			why = reasonNotFollowedUp
		}
		d.add(action{Verb: verbUnmark, Pod: pod, Reason: why})
	}
}
