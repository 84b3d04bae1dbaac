// SPDX-License-Identifier: Apache-2.0

// Package status computes a SandboxPool's status from its Pods.
//
// In: the Pods of a pool, how long each has been in its stage, and the Gaters' conditions for the pool. Out: counts, phase, selectors and
// conditions, and why idle Pods do not become ready.
//
//	stuck.go   causes for which idle Pods do not become ready
//	status.go  Counts, and the status from them
//
// Everything is a function of its arguments. The same Pods have the same status at any time, so it is not written again: TestPhase.
// status.autoscaling belongs to the autoscaler and is not changed.
package status

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/sandbox"
)

// Counts are the Pods of a pool by phase, without those that are being deleted.
type Counts struct {
	Idle, Unavailable, Starting, Running, Stopping, Failed int32
	// Dying counts Pods that are being deleted and still exist.
	Dying int32
	// Pending is the value of status.pendingRequests.
	Pending int32
	// Causes says why idle Pods do not become ready. Refused says why there are fewer Pods than wanted.
	Causes  Causes
	Refused string
}

// Count counts the Pods of a pool, given how long each has been in its stage.
func Count(pods []*corev1.Pod, ages map[types.UID]time.Duration) Counts {
	c := Counts{Causes: causesOf(pods, ages)}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			c.Dying++
			continue
		}
		switch sandbox.PhaseOf(pod) {
		case sandbox.Idle:
			c.Idle++
			if sandbox.ReadyCondition(pod) == nil {
				c.Unavailable++
			}
		case sandbox.Starting:
			c.Starting++
		case sandbox.Running:
			c.Running++
		case sandbox.Stopping:
			c.Stopping++
		case sandbox.Failed:
			c.Failed++
		}
	}
	return c
}

// longestCause bounds the cause of a refusal in a condition.
const longestCause = 900

func (c *Counts) replicas() int32 { return c.Idle + c.Starting + c.Running + c.Stopping }

// foundByOthers are the condition types that Gaters may report. A condition that is no longer reported is removed.
var foundByOthers = []string{v1alpha1.SandboxPoolConditionTemplateConsistent, v1alpha1.SandboxPoolConditionNetworkPolicyApplied}

// Write writes the counts, and the conditions of others, into the pool's status.
func (c *Counts) Write(pool *v1alpha1.SandboxPool, found []patch.Condition, clk clock.PassiveClock) {
	st := &pool.Status
	st.IdleReplicas, st.UnavailableIdleReplicas = c.Idle, c.Unavailable
	st.StartingReplicas, st.RunningReplicas, st.StoppingReplicas = c.Starting, c.Running, c.Stopping
	st.FailedReplicas = c.Failed
	st.PendingRequests = c.Pending
	st.Phase = c.phase(pool)
	selectors(pool)
	st.Conditions = slices.DeleteFunc(st.Conditions, func(old metav1.Condition) bool {
		return slices.Contains(foundByOthers, old.Type) &&
			!slices.ContainsFunc(found, func(f patch.Condition) bool { return f.Type == old.Type })
	})
	for _, condition := range append([]patch.Condition{c.available(), c.scaling(pool), c.degraded()}, found...) {
		patch.SetCondition(&st.Conditions, clk, pool.Generation, condition)
	}
}

// phase returns the phase, in the order of the phase's API documentation.
func (c *Counts) phase(pool *v1alpha1.SandboxPool) v1alpha1.SandboxPoolPhase {
	have, want := c.replicas(), pool.Spec.Replicas
	switch {
	case pool.DeletionTimestamp != nil:
		return v1alpha1.SandboxPoolPhaseTerminating
	case want == 0 && have == 0 && c.Failed == 0 && c.Dying == 0:
		return v1alpha1.SandboxPoolPhasePending
	case have < want:
		return v1alpha1.SandboxPoolPhaseScalingUp
	case have > want, want == 0 && c.Dying > 0:
		return v1alpha1.SandboxPoolPhaseScalingDown
	case c.Unavailable > 0 || c.Failed > 0:
		return v1alpha1.SandboxPoolPhaseDegraded
	}
	return v1alpha1.SandboxPoolPhaseReady
}

func selectors(pool *v1alpha1.SandboxPool) {
	all := sandbox.PoolLabels(pool.Name)
	st := &pool.Status
	st.Selector = labels.Set(all).String()
	st.LabelSelector = &metav1.LabelSelector{MatchLabels: all}
	st.PhaseSelectors = map[string]string{"all": st.Selector}
	for _, phase := range []sandbox.Phase{sandbox.Idle, sandbox.Running, sandbox.Starting, sandbox.Stopping, sandbox.Failed} {
		set := sandbox.PoolLabels(pool.Name)
		set[v1alpha1.SandboxPhaseLabelKey] = string(phase)
		st.PhaseSelectors[string(phase)] = labels.Set(set).String()
	}
}

func (c *Counts) available() patch.Condition {
	cond := patch.Condition{
		Type: v1alpha1.SandboxPoolConditionAvailable, Status: metav1.ConditionFalse,
		Reason: v1alpha1.SandboxPoolReasonNoIdlePodsAvailable, Message: "no idle Pod is ready",
	}
	if n := c.Idle - c.Unavailable; n > 0 {
		cond.Status, cond.Reason = metav1.ConditionTrue, v1alpha1.SandboxPoolReasonIdlePodsAvailable
		cond.Message = fmt.Sprintf("idle Pods that are ready: %d", n)
	}
	return cond
}

func (c *Counts) scaling(pool *v1alpha1.SandboxPool) patch.Condition {
	cond := patch.Condition{
		Type: v1alpha1.SandboxPoolConditionScaling, Status: metav1.ConditionTrue,
		Message: fmt.Sprintf("Pods: %d, wanted: %d", c.replicas(), pool.Spec.Replicas),
	}
	switch have, want := c.replicas(), pool.Spec.Replicas; {
	case have < want && pool.DeletionTimestamp == nil:
		cond.Reason = v1alpha1.SandboxPoolReasonScalingUp
		if c.Refused != "" {
			cond.Message += "; refused: " + clip.Text(c.Refused, longestCause)
		}
	case have > want, want == 0 && c.Dying > 0, pool.DeletionTimestamp != nil && have > 0:
		cond.Reason = v1alpha1.SandboxPoolReasonScalingDown
	default:
		cond.Status, cond.Reason = metav1.ConditionFalse, v1alpha1.SandboxPoolReasonReplicasReady
	}
	return cond
}

func (c *Counts) degraded() patch.Condition {
	cond := patch.Condition{
		Type: v1alpha1.SandboxPoolConditionDegraded, Status: metav1.ConditionTrue,
		Message: fmt.Sprintf("idle Pods that are not ready: %d, failed Pods: %d", c.Unavailable, c.Failed),
	}
	if len(c.Causes) > 0 {
		cond.Message += "; not becoming ready: " + c.Causes.String()
	}
	switch {
	case c.Unavailable > 0 && c.Failed > 0:
		cond.Reason = v1alpha1.SandboxPoolReasonUnhealthyAndFailed
	case c.Unavailable > 0:
		cond.Reason = v1alpha1.SandboxPoolReasonUnhealthyIdlePods
	case c.Failed > 0:
		cond.Reason = v1alpha1.SandboxPoolReasonFailedPodsPresent
	default:
		cond.Status, cond.Reason = metav1.ConditionFalse, v1alpha1.SandboxPoolReasonAllPodsHealthy
		cond.Message = "all Pods are healthy"
	}
	return cond
}
