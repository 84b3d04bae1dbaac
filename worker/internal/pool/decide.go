// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// resetTimeout is how long a stopping Pod may take to become idle. After that, a new Pod is assumed to be faster.
	resetTimeout = 2 * time.Minute
	// endingPatience is how long a kubelet may take to report why a container has ended. It reports an eviction only when the whole Pod is
	// down.
	endingPatience = 3 * time.Second
	// maxCreate and maxScaleDown bound the Pods of one round, so that sandboxes are started and ended between rounds.
	maxCreate    = 250
	maxScaleDown = 250
	// maxUnrecorded is how many Pods, or twice the replicas if that is more, may wait for their records. Beyond that no new Pods replace them,
	// because with a full disk they would pile up in etcd (I10).
	maxUnrecorded = 500
)

// decide returns the actions for one pool. It decides about each Pod first, and then about the number of Pods if that is settled.
func decide(s snapshot) decision {
	d := decision{Scale: scaleUnsettled}
	leaving := map[*corev1.Pod]bool{}
	for _, pod := range s.Pods {
		if s.Stale[pod.UID] {
			continue
		}
		if decidePod(&s, pod, &d) {
			leaving[pod] = true
		}
	}
	switch {
	case s.Pool == nil:
		d.Scale = scalePoolAbsent
	case s.Pool.DeletionTimestamp != nil:
		d.Scale = scaleDraining
		d.ReleasePool = len(s.Pods) == 0 && s.Settled && hasPoolFinalizer(s.Pool)
	default:
		d.ProtectPool = !hasPoolFinalizer(s.Pool)
		if s.Settled {
			decideScale(&s, leaving, &d)
		}
	}
	order(d.Actions)
	return d
}

// decidePod decides about one Pod and reports whether the Pod is leaving.
func decidePod(s *snapshot, pod *corev1.Pod, d *decision) bool {
	if pod.DeletionTimestamp != nil {
		if sandbox.IsProtected(pod) {
			d.add(action{Verb: verbBury, Pod: pod, Reason: reasonTerminating})
		}
		return true
	}
	if s.Pool == nil {
		return false
	}
	if !sandbox.IsProtected(pod) || orphaned(pod) {
		d.add(action{Verb: verbProtect, Pod: pod, Reason: reasonUnprotected})
	}
	if withoutSandbox(pod) {
		d.add(action{Verb: verbDelete, Pod: pod, Reason: reasonWithoutSandbox})
		return true
	}
	phase := sandbox.PhaseOf(pod)
	if phase != sandbox.Failed && sandbox.Mislabelled(pod) != nil {
		// Relabel first, because other components select Pods by their labels.
		d.add(action{Verb: verbRelabel, Pod: pod, Reason: reasonLabelsEdited})
		return false
	}
	switch phase {
	case sandbox.Idle:
		return decideIdle(s, pod, d)
	case sandbox.Starting:
		decideStarting(s, pod, d)
	case sandbox.Running:
		decideRunning(s, pod, d)
	case sandbox.Stopping:
		return decideStopping(s, pod, d)
	case sandbox.Failed:
		d.add(action{Verb: verbDelete, Pod: pod, Reason: reasonFailed})
		return true
	}
	return false
}

// withoutSandbox reports whether the Pod has no sandbox but is not idle by its label. Such a Pod was edited manually: either an idle Pod
// lost its label, or a Pod lost every trace of its sandbox. It can no longer be claimed, and takes up a replica.
func withoutSandbox(pod *corev1.Pod) bool {
	switch sandbox.PhaseOf(pod) {
	case sandbox.Idle, sandbox.Stopping, sandbox.Failed:
		return false
	}
	return sandbox.IDOf(pod) == ""
}

// decideIdle keeps idle Pods that never become ready, because a new one would fare no better. It replaces a Pod that has ended after a
// back-off. Until then the Pod takes up its replica.
func decideIdle(s *snapshot, pod *corev1.Pod, d *decision) bool {
	switch {
	case s.Pool.DeletionTimestamp != nil:
		d.add(action{Verb: verbDelete, Pod: pod, Reason: reasonPoolTerminating})
		return true
	case !sandbox.Finished(pod):
		return false
	case s.CrashBackoff > 0:
		d.wake(s.CrashBackoff)
		return false
	}
	d.add(action{Verb: verbDelete, Pod: pod, Reason: reasonIdleCrashed})
	return true
}

func decideStarting(s *snapshot, pod *corev1.Pod, d *decision) {
	o := sandbox.Observe(pod)
	switch o.Progress {
	case sandbox.Up:
		// With sidecars or readiness gates, the container is ready before the Pod is. A caller needs the Pod.
		if !ready(pod) {
			why := sandbox.Diagnose(pod)
			o.Detail = v1alpha1.SandboxStatusDetail{Reason: why.Reason, Message: why.Message}
			break
		}
		detail, over := decidePrepared(s, pod, d)
		if over {
			return
		}
		o.Detail = detail
	case sandbox.Over:
		d.add(endOf(pod, reasonEnded, o.End))
		return
	}
	if limit := startupTimeout(s.Pool, pod); limit > 0 {
		age := s.Ages[pod.UID]
		if age >= limit {
			d.add(action{Verb: verbFail, Pod: pod, Reason: reasonStartupTimeout, End: sandbox.End{
				StopReason: v1alpha1.SandboxStopReasonFailed,
				Reason:     string(reasonStartupTimeout),
				Message:    fmt.Sprintf("not running after %s: %s: %s", limit, o.Detail.Reason, o.Detail.Message),
			}})
			return
		}
		d.wake(limit - age)
	}
	if worthWriting(o.Detail.Reason) && o.Detail.Reason != statusDetailReason(pod) {
		if wait := s.Noted[pod.UID]; wait > 0 {
			d.wake(wait)
			return
		}
		d.add(action{Verb: verbDetail, Pod: pod, Reason: reasonWaiting, Detail: o.Detail})
	}
}

// decidePrepared starts a sandbox when its Pod is ready and its hooks are done. It reports whether it has decided to start or end the
// sandbox. The startup timeout runs until then.
func decidePrepared(s *snapshot, pod *corev1.Pod, d *decision) (detail v1alpha1.SandboxStatusDetail, over bool) {
	detail = v1alpha1.SandboxStatusDetail{Reason: sandbox.ReasonHooks, Message: "readiness checks and post-start hooks are under way"}
	switch p := s.Preparations[pod.UID]; p.Status {
	case hooks.Due:
		d.add(action{Verb: verbPrepare, Pod: pod, Reason: reasonHooksDue})
	case hooks.Working:
		if p.Message != "" {
			detail.Reason, detail.Message = sandbox.ReasonHookFailing, p.Message
		}
	case hooks.Failed, hooks.Unresolved:
		why := reasonHookFailed
		if p.Status == hooks.Unresolved {
			why = reasonHookSecret
		}
		d.add(action{Verb: verbFail, Pod: pod, Reason: why, End: sandbox.End{
			StopReason: v1alpha1.SandboxStopReasonFailed, Reason: string(why), Message: p.Message,
		}})
		return detail, true
	default:
		d.add(action{Verb: verbStart, Pod: pod, Reason: reasonRunning})
		return detail, true
	}
	return detail, false
}

func decideRunning(s *snapshot, pod *corev1.Pod, d *decision) {
	o := sandbox.Observe(pod)
	age := s.Ages[pod.UID]
	switch {
	case o.Progress == sandbox.Over, o.Progress == sandbox.Ending && age >= endingPatience:
		d.add(endOf(pod, reasonEnded, o.End))
	case o.Progress == sandbox.Ending:
		d.wake(endingPatience - age)
	}
}

// endOf returns the action that ends a sandbox. The Pod is kept only if the sandbox completed, because the cause of a failure may persist
// in the Pod.
func endOf(pod *corev1.Pod, reason reason, end sandbox.End) action {
	verb := verbRelease
	if end.StopReason == v1alpha1.SandboxStopReasonFailed {
		verb = verbFail
	}
	return action{Verb: verb, Pod: pod, Reason: reason, End: end}
}

// decideStopping keeps I13: a Pod becomes idle only if it passes sandbox.ResetDone, so that no data of one tenant reaches the next.
func decideStopping(s *snapshot, pod *corev1.Pod, d *decision) bool {
	replace := func(reason reason) bool {
		d.add(action{Verb: verbDelete, Pod: pod, Reason: reason})
		return true
	}
	switch {
	case s.Pool.DeletionTimestamp != nil:
		return replace(reasonPoolTerminating)
	case !sandbox.Recyclable(pod, &s.Pool.Spec).Reset:
		return replace(reasonNotRecyclable)
	case outdated(s, pod):
		return replace(reasonOutdated)
	}
	if held, ok := sandbox.HeldBack(pod); ok && held > s.NewPod {
		return replace(reasonResetBackoff)
	}
	switch {
	case holdsBack(s, pod):
		// Even if this reset were fast, the swap for the next sandbox would not be.
		return replace(reasonHeldBack)
	case sandbox.ResetDone(pod, &s.Pool.Spec):
		d.add(action{Verb: verbRecycle, Pod: pod, Reason: reasonReset})
		return false
	}
	age := s.Ages[pod.UID]
	if age >= resetTimeout {
		return replace(reasonResetTimeout)
	}
	d.wake(resetTimeout - age)
	return false
}

// decideScale compares the number of Pods that stay with the replicas. It marks and deletes only idle Pods: a scale-down never ends a
// running sandbox (I6).
func decideScale(s *snapshot, leaving map[*corev1.Pod]bool, d *decision) {
	held, idle, marksMoving := 0, []*corev1.Pod(nil), false
	for _, pod := range s.Pods {
		if leaving[pod] || pod.DeletionTimestamp != nil || !holdsReplica(pod) {
			continue
		}
		held++
		if sandbox.PhaseOf(pod) == sandbox.Idle {
			idle = append(idle, pod)
			marksMoving = marksMoving || s.Stale[pod.UID]
		}
	}
	surplus := held - int(s.Pool.Spec.Replicas)
	switch {
	case surplus < 0 && s.Awaits:
		d.Scale = scaleAwaiting
	case surplus < 0 && unrecorded(s) > max(maxUnrecorded, 2*int(s.Pool.Spec.Replicas)):
		d.Scale = scaleUnrecorded
	case surplus < 0 && s.Refused > 0:
		d.Scale = scaleRefused
		d.wake(s.Refused)
		unmark(s, idle, d)
	case surplus < 0:
		d.Scale, d.Create = scaleUp, min(-surplus, maxCreate)
		unmark(s, idle, d)
		replaceOutdated(s, idle, -surplus, d)
	case marksMoving:
		// The cache lacks a mark. A decision based on it would mark too many Pods.
		d.Scale = scaleUnsettled
	case surplus > 0:
		d.Scale = shrink(s, idle, surplus, d)
	default:
		d.Scale = scaleNone
		unmark(s, idle, d)
		replaceOutdated(s, idle, 0, d)
	}
}

// unrecorded counts the leaving Pods whose record is not stored yet.
func unrecorded(s *snapshot) (n int) {
	for _, pod := range s.Pods {
		if pod.DeletionTimestamp != nil && sandbox.IsProtected(pod) && !s.Stale[pod.UID] {
			n++
		}
	}
	return n
}

// shrink marks surplus idle Pods, and deletes those whose window is over.
func shrink(s *snapshot, idle []*corev1.Pod, surplus int, d *decision) scaleReason {
	if len(idle) == 0 {
		return scaleDownBusy
	}
	var marked, free []*corev1.Pod
	for _, pod := range idle {
		if sandbox.MarkedAt(pod) != "" {
			marked = append(marked, pod)
		} else {
			free = append(free, pod)
		}
	}
	slices.SortStableFunc(marked, func(a, b *corev1.Pod) int { return cmp.Compare(s.Ages[b.UID], s.Ages[a.UID]) })
	if len(marked) > surplus {
		unmark(s, marked[surplus:], d)
		marked = marked[:surplus]
	}
	for i, pod := range marked {
		if age := s.Ages[pod.UID]; age < s.Window {
			d.wake(s.Window - age)
		} else if i < maxScaleDown {
			d.add(action{Verb: verbDelete, Pod: pod, Reason: reasonScaleDown})
		}
	}
	if surplus > len(marked) && !marksItself(s, d) {
		return scaleDown
	}
	slices.SortStableFunc(free, func(a, b *corev1.Pod) int { return leastMissed(s, a, b) })
	for _, pod := range free[:min(len(free), surplus-len(marked), maxScaleDown)] {
		verb := verbMark
		if s.Window <= 0 {
			verb = verbDelete
		}
		d.add(action{Verb: verb, Pod: pod, Reason: reasonScaleDown})
	}
	return scaleDown
}

// leastMissed orders Pods by how little they are missed: first those that are not ready, then those of an old template, then the youngest.
func leastMissed(s *snapshot, a, b *corev1.Pod) int {
	return cmp.Or(
		first(!ready(a), !ready(b)),
		first(outdated(s, a), outdated(s, b)),
		b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	)
}

// order sorts the actions that callers wait for to the front. It keeps the Pods' order otherwise.
func order(actions []action) {
	rank := map[verb]int{}
	for i, verb := range []verb{verbStart, verbPrepare, verbRelease, verbFail, verbRelabel, verbRecycle, verbBury, verbUnmark, verbProtect,
		verbDetail, verbDelete, verbMark} {
		rank[verb] = i
	}
	slices.SortStableFunc(actions, func(a, b action) int { return cmp.Compare(rank[a.Verb], rank[b.Verb]) })
}
