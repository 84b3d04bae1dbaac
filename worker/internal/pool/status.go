// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/sandbox"
)

// counts are the Pods of a pool by phase. Pods that are being deleted are none of
// the pool's any more.
type counts struct {
	idle, unavailable, starting, running, stopping, failed int32
	dying                                                  int32  // being deleted, and there still
	causes                                                 string // why idle Pods are stuck
	refused                                                string // why there are fewer Pods than wanted
}

func countPods(s *Snapshot) counts {
	var c counts
	for _, pod := range s.Pods {
		if pod.DeletionTimestamp != nil {
			c.dying++
			continue
		}
		switch sandbox.PhaseOf(pod) {
		case sandbox.Idle:
			c.idle++
			if !ready(pod) {
				c.unavailable++
			}
		case sandbox.Starting:
			c.starting++
		case sandbox.Running:
			c.running++
		case sandbox.Stopping:
			c.stopping++
		case sandbox.Failed:
			c.failed++
		}
	}
	return c
}

func (c counts) replicas() int32 { return c.idle + c.starting + c.running + c.stopping }

// summarize writes what was seen of a pool into its status. status.autoscaling
// is somebody else's and stays as it is.
func summarize(pool *v1alpha1.SandboxPool, c counts, pending int32, clk clock.PassiveClock) {
	st := &pool.Status
	st.IdleReplicas, st.UnavailableIdleReplicas = c.idle, c.unavailable
	st.StartingReplicas, st.RunningReplicas, st.StoppingReplicas = c.starting, c.running, c.stopping
	st.FailedReplicas = c.failed
	st.PendingRequests = pending
	st.Phase = phaseOf(pool, c)
	selectors(pool)
	for _, c := range []patch.Condition{available(c), scaling(pool, c), degraded(c)} {
		patch.SetCondition(&st.Conditions, clk, pool.Generation, c)
	}
}

// phaseOf goes by the order that the phase's documentation gives.
func phaseOf(pool *v1alpha1.SandboxPool, c counts) v1alpha1.SandboxPoolPhase {
	have, want := c.replicas(), pool.Spec.Replicas
	switch {
	case pool.DeletionTimestamp != nil:
		return v1alpha1.SandboxPoolPhaseTerminating
	case want == 0 && have == 0 && c.failed == 0 && c.dying == 0:
		return v1alpha1.SandboxPoolPhasePending
	case have < want:
		return v1alpha1.SandboxPoolPhaseScalingUp
	case have > want, want == 0 && c.dying > 0:
		return v1alpha1.SandboxPoolPhaseScalingDown
	case c.unavailable > 0 || c.failed > 0:
		return v1alpha1.SandboxPoolPhaseDegraded
	}
	return v1alpha1.SandboxPoolPhaseReady
}

// pendingMoved tells whether the length of the claim queue is worth a write: it
// changed by a fifth, or to or from nothing.
func pendingMoved(before, now int32) bool {
	change := max(before, now) - min(before, now)
	return (before == 0) != (now == 0) || change > 0 && 5*int64(change) >= int64(before)
}

func selectors(pool *v1alpha1.SandboxPool) {
	all := podLabels(pool.Name)
	st := &pool.Status
	st.Selector = labels.Set(all).String()
	st.LabelSelector = &metav1.LabelSelector{MatchLabels: all}
	st.PhaseSelectors = map[string]string{"all": st.Selector}
	for _, phase := range []sandbox.Phase{sandbox.Idle, sandbox.Running, sandbox.Starting, sandbox.Stopping, sandbox.Failed} {
		set := podLabels(pool.Name)
		set[v1alpha1.SandboxPhaseLabelKey] = string(phase)
		st.PhaseSelectors[string(phase)] = labels.Set(set).String()
	}
}

func available(c counts) patch.Condition {
	cond := patch.Condition{
		Type: v1alpha1.SandboxPoolConditionAvailable, Status: metav1.ConditionFalse,
		Reason: v1alpha1.SandboxPoolReasonNoIdlePodsAvailable, Message: "no idle Pod is ready",
	}
	if n := c.idle - c.unavailable; n > 0 {
		cond.Status, cond.Reason = metav1.ConditionTrue, v1alpha1.SandboxPoolReasonIdlePodsAvailable
		cond.Message = fmt.Sprintf("idle Pods that are ready: %d", n)
	}
	return cond
}

func scaling(pool *v1alpha1.SandboxPool, c counts) patch.Condition {
	cond := patch.Condition{
		Type: v1alpha1.SandboxPoolConditionScaling, Status: metav1.ConditionTrue,
		Message: fmt.Sprintf("Pods: %d, wanted: %d", c.replicas(), pool.Spec.Replicas),
	}
	switch have, want := c.replicas(), pool.Spec.Replicas; {
	case have < want && pool.DeletionTimestamp == nil:
		cond.Reason = v1alpha1.SandboxPoolReasonScalingUp
		if c.refused != "" {
			cond.Message += "; refused: " + clipNote(c.refused)
		}
	case have > want, want == 0 && c.dying > 0, pool.DeletionTimestamp != nil && have > 0:
		cond.Reason = v1alpha1.SandboxPoolReasonScalingDown
	default:
		cond.Status, cond.Reason = metav1.ConditionFalse, v1alpha1.SandboxPoolReasonReplicasReady
	}
	return cond
}

func degraded(c counts) patch.Condition {
	cond := patch.Condition{
		Type: v1alpha1.SandboxPoolConditionDegraded, Status: metav1.ConditionTrue,
		Message: fmt.Sprintf("idle Pods that are not ready: %d, failed Pods: %d", c.unavailable, c.failed),
	}
	if c.causes != "" {
		cond.Message += "; not becoming ready: " + c.causes
	}
	switch {
	case c.unavailable > 0 && c.failed > 0:
		cond.Reason = v1alpha1.SandboxPoolReasonUnhealthyAndFailed
	case c.unavailable > 0:
		cond.Reason = v1alpha1.SandboxPoolReasonUnhealthyIdlePods
	case c.failed > 0:
		cond.Reason = v1alpha1.SandboxPoolReasonFailedPodsPresent
	default:
		cond.Status, cond.Reason = metav1.ConditionFalse, v1alpha1.SandboxPoolReasonAllPodsHealthy
		cond.Message = "all Pods are healthy"
	}
	return cond
}
