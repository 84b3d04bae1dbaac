// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/worker/internal/sandbox"
)

// stuckAfter is how long an idle Pod may take to be ready when nothing says that
// it will not be: there may be a node for it by then.
const stuckAfter = 2 * time.Minute

// cause is why idle Pods are not ready, and one of them.
type cause struct {
	reason, message string
	pods            int
	pod             *corev1.Pod
}

// stuck sums up why idle Pods of a pool do not become ready. Pods that are on
// their way are not among them.
func stuck(s *Snapshot) []cause {
	var causes []cause
	for _, pod := range s.Pods {
		if pod.DeletionTimestamp != nil || sandbox.PhaseOf(pod) != sandbox.Idle {
			continue
		}
		d := sandbox.Diagnose(pod)
		switch d.Reason {
		case "":
			continue
		case "ErrImagePull":
			d.Reason = "ImagePullBackOff" // a kubelet reports the two in turns
		case sandbox.ReasonPulling, sandbox.ReasonNotReady, corev1.PodReasonUnschedulable, corev1.PodReasonSchedulingGated:
			if s.Ages[pod.UID] < stuckAfter {
				continue
			}
		}
		at := slices.IndexFunc(causes, func(c cause) bool { return c.reason == d.Reason })
		if at < 0 {
			causes = append(causes, cause{reason: d.Reason, message: d.Message, pods: 1, pod: pod})
			continue
		}
		causes[at].pods++
	}
	slices.SortFunc(causes, func(a, b cause) int { return cmp.Compare(a.reason, b.reason) })
	return causes
}

// describeCauses is the causes in a condition's message, "" for none.
func describeCauses(causes []cause) string {
	parts := make([]string, 0, len(causes))
	for _, c := range causes {
		parts = append(parts, fmt.Sprintf("%s: %d", c.reason, c.pods))
	}
	return strings.Join(parts, ", ")
}
