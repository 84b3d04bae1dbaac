// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/idle"
	"navix.sh/atoll/worker/internal/latency"
	"navix.sh/atoll/worker/internal/pool/status"
	"navix.sh/atoll/worker/internal/sandbox"
)

// statusInterval is the minimum time between two writes of a pool's status. Pods of a busy pool change hundreds of times a second, and each
// status write takes the place of a claim's.
const statusInterval = time.Second

// statusRate is the number of pool statuses that are written per second, and the size of a burst, for all pools together. Each write of a
// pool's status entails one of its Env's. With a thousand busy pools these would take as much of the API server as claims do, and no
// decision depends on them.
const statusRate = 10

// measure counts the pool's Pods, for the metrics and the report.
func (r *Reconciler) measure(key types.NamespacedName, s *snapshot) *status.Counts {
	c := status.Count(s.Pods, s.Ages)
	r.metrics.observe(key, &c, r.opts.Queues.Waiting(key))
	for _, took := range r.replacements.observe(key, s.Pods) {
		r.metrics.replaceSeconds.Observe(took.Seconds())
	}
	return &c
}

// report writes the pool's status if it changed. If it is too early for a write, report returns how long to wait.
func (r *Reconciler) report(ctx context.Context, key types.NamespacedName, s *snapshot, c *status.Counts) (time.Duration, error) {
	r.notices.stuck(s.Pool, c.Causes)
	if last, ok := r.opts.Refusals.Last(key); ok {
		c.Refused = last.Message
	}
	pool := s.Pool.DeepCopy()
	helper := patch.NewPatchHelper(r.opts.Client, pool)
	var later time.Duration
	c.Pending, later = r.pendingToWrite(key, pool.Status.PendingRequests, r.opts.Queues.Waiting(key))
	c.Write(pool, s.Conditions, writtenTime{r.opts.Clock, r.opts.Times})
	if !helper.HasChanges(pool) {
		return later, nil
	}
	wait := r.statuses.waitSlot
	if urgent(s.Pool.Status.Conditions, pool.Status.Conditions) {
		wait = r.statuses.wait
	}
	if wait := wait(key); wait > 0 {
		return wait, nil
	}
	if err := helper.Patch(ctx, pool); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return 0, fmt.Errorf("reporting: %w", err)
	}
	r.statuses.wrote(key)
	if c.Pending != s.Pool.Status.PendingRequests {
		r.pendings.wrote(key)
	}
	return later, nil
}

// urgent reports whether a condition that users wait for has changed its status. Scaling and Degraded change whenever a Pod is replaced.
func urgent(before, after []metav1.Condition) bool {
	for i := range after {
		switch after[i].Type {
		case v1alpha1.SandboxPoolConditionScaling, v1alpha1.SandboxPoolConditionDegraded:
		default:
			if was := meta.FindStatusCondition(before, after[i].Type); was == nil || was.Status != after[i].Status {
				return true
			}
		}
	}
	return false
}

// pendingToWrite returns the value for status.pendingRequests. If it is too early to write a new value, later is how long to wait.
func (r *Reconciler) pendingToWrite(key types.NamespacedName, written, waiting int32) (pending int32, later time.Duration) {
	if !pendingMoved(written, waiting) {
		return written, 0
	}
	if later = r.pendings.wait(key); later > 0 {
		return written, later
	}
	return waiting, 0
}

// pendingMoved reports whether the length of the claim queue is worth a write: it changed by a fifth, or to or from 0.
func pendingMoved(before, now int32) bool {
	change := max(before, now) - min(before, now)
	return (before == 0) != (now == 0) || change > 0 && 5*int64(change) >= int64(before)
}

// writtenTime is the clock for the times in conditions.
type writtenTime struct {
	clock.PassiveClock
	times interface{ Now() time.Time }
}

func (w writtenTime) Now() time.Time { return w.times.Now() }

// reportAction reports an action in metrics and Events.
func (r *Reconciler) reportAction(s *snapshot, a action) {
	switch a.Verb {
	case verbStart:
		r.metrics.startSeconds.Observe(s.Ages[a.Pod.UID].Seconds())
		if _, prepared := s.Preparations[a.Pod.UID]; !prepared {
			r.observeSwap(s, a.Pod)
		}
	case verbPrepare:
		r.observeSwap(s, a.Pod)
	case verbRelease, verbFail:
		r.reportEnd(s, a.Pod, string(a.Verb), string(a.End.StopReason), a.End.Reason, a.End.Message)
	case verbRelabel:
		r.notices.warn(s.Pool, a.Pod, a.Reason, string(a.Verb), "labels of pod %s were edited by hand, and have been written back", a.Pod.Name)
	case verbRecycle:
		r.metrics.recycleSeconds.Observe(s.Ages[a.Pod.UID].Seconds())
		r.reportTimeout(s, a.Pod, string(a.Verb))
	case verbBury:
		if a.Released != nil {
			if s.Pool != nil {
				r.replacements.gone(client.ObjectKeyFromObject(s.Pool))
			}
			return
		}
		// The sandbox did not end; its Pod was deleted.
		if state := sandbox.Read(a.Pod); state.Phase.Live() && state.End.StopReason == "" && s.Pool != nil {
			record := sandbox.TerminalRecord(a.Pod, nil, r.opts.ClusterID, r.opts.Times.Now(), nil)
			r.reportEnd(s, a.Pod, string(a.Verb), record.GetStopReason(), record.GetFailureReason(), record.GetFailureMessage())
		}
	case verbDelete:
		switch a.Reason {
		case reasonScaleDown, reasonPoolTerminating:
			return
		case reasonResetTimeout, reasonResetBackoff, reasonIdleCrashed:
			r.notices.warn(s.Pool, a.Pod, a.Reason, string(a.Verb), "pod %s is replaced", a.Pod.Name)
		}
		r.reportTimeout(s, a.Pod, string(a.Verb))
		r.replacements.gone(client.ObjectKeyFromObject(s.Pool))
	}
}

// reportEnd reports a failed sandbox. A sandbox that completed, or that its owner or a timeout ended, needs no report.
func (r *Reconciler) reportEnd(s *snapshot, pod *corev1.Pod, action, stop, reason, message string) {
	if reason == "" {
		return
	}
	r.notices.warn(s.Pool, pod, reasonSandboxEnded, action, "sandbox %s on pod %s ended: %s %s",
		sandbox.Read(pod).ID, pod.Name, stop, strings.TrimSpace(reason+" "+message))
}

// reportTimeout reports a sandbox that one of its timeouts has ended, when its Pod is reset or replaced. Its user can then find out why.
// The Event is not a warning, because nothing is wrong.
func (r *Reconciler) reportTimeout(s *snapshot, pod *corev1.Pod, action string) {
	state := sandbox.Read(pod)
	if state.Phase != sandbox.Stopping {
		return
	}
	if why := idle.Reason(state.End.Reason); why.Known() {
		r.notices.record(s.Pool, pod, corev1.EventTypeNormal, reason(why), action, "sandbox %s on pod %s was released: %s",
			state.ID, pod.Name, state.End.Message)
	}
}

// observeSwap measures the swap of a Pod that has just become ready, if its image was swapped.
func (r *Reconciler) observeSwap(s *snapshot, pod *corev1.Pod) {
	if sandbox.Read(pod).SwapFrom != "" {
		r.opts.Latency.Took(latency.Swap, s.Ages[pod.UID])
	}
}

// firstLine returns the message of the first of several joined errors, because the others mostly repeat it.
func firstLine(err error) string {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) && len(joined.Unwrap()) > 0 {
		err = joined.Unwrap()[0]
	}
	return err.Error()
}
