// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// followUp is how long after the window the autoscaler may take to lower replicas. Then the mark is removed, because the autoscaler may
	// have been disabled or have died.
	followUp = 30 * time.Second
	// ownMarks is how long an autoscaled pool must have surplus Pods before it marks some itself. The autoscaler marks Pods before it lowers
	// replicas. Unmarked surplus Pods therefore mean that a marked one was claimed at the last moment: replicas will rise again, and no other
	// Pod must go in its place. If they do not rise, another writer has lowered them, and does so again.
	ownMarks = 10 * time.Second
	// surplusStage is the timeline's key for the surplus; its other keys are uids of Pods.
	surplusStage types.UID = "surplus"
)

// surplusOf returns the name of the stage in which a pool has more Pods than replicas, or "" if it has not.
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

// marksItself reports whether the pool marks surplus Pods itself.
func marksItself(s *snapshot, d *decision) bool {
	if !s.Autoscaled {
		return true
	}
	if left := ownMarks - s.Ages[surplusStage]; left > 0 {
		d.wake(left)
		return false
	}
	return true
}

// unmark removes marks of Pods that are no longer surplus. The autoscaler marks Pods first and lowers replicas after the window, so its
// marks stay that long.
func unmark(s *snapshot, pods []*corev1.Pod, d *decision) {
	for _, pod := range pods {
		if sandbox.MarkedAt(pod) == "" || s.Stale[pod.UID] {
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
