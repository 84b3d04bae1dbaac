// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/worker/internal/sandbox"
)

// StuckAfter is how long an idle Pod may take to become ready if no error says that it will not. A node may still appear for it.
const StuckAfter = 2 * time.Minute

// Cause is a reason why idle Pods are not ready, with their number and one of them.
type Cause struct {
	Reason, Message string
	Pods            int
	Pod             *corev1.Pod
}

// Causes are sorted by reason.
type Causes []Cause

// String returns the causes as text for a condition's message, or "".
func (c Causes) String() string {
	parts := make([]string, len(c))
	for i := range c {
		parts[i] = fmt.Sprintf("%s: %d", c[i].Reason, c[i].Pods)
	}
	return strings.Join(parts, ", ")
}

// Pods returns how many Pods do not become ready.
func (c Causes) Pods() int32 {
	var n int32
	for i := range c {
		n += int32(c[i].Pods)
	}
	return n
}

// causesOf returns why idle Pods do not become ready. It omits Pods that are still becoming ready.
func causesOf(pods []*corev1.Pod, ages map[types.UID]time.Duration) Causes {
	var causes Causes
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || sandbox.PhaseOf(pod) != sandbox.Idle {
			continue
		}
		d := sandbox.Diagnose(pod)
		switch d.Reason {
		case "":
			continue
		case "ErrImagePull":
			d.Reason = "ImagePullBackOff" // a kubelet alternates between the two
		case sandbox.ReasonPulling, sandbox.ReasonNotReady, corev1.PodReasonUnschedulable, corev1.PodReasonSchedulingGated:
			if ages[pod.UID] < StuckAfter {
				continue
			}
		}
		at := slices.IndexFunc(causes, func(c Cause) bool { return c.Reason == d.Reason })
		if at < 0 {
			at = len(causes)
			causes = append(causes, Cause{Reason: d.Reason, Message: d.Message, Pod: pod})
		}
		causes[at].Pods++
	}
	slices.SortFunc(causes, func(a, b Cause) int { return cmp.Compare(a.Reason, b.Reason) })
	return causes
}
