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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/idle"
	"navix.sh/atoll/worker/internal/latency"
	"navix.sh/atoll/worker/internal/sandbox"
)

// statusInterval is the shortest time between two writes of a pool's status.
// Pods of a busy pool change hundreds of times a second, and each write of the
// status takes the place of a claim's.
const statusInterval = time.Second

// report writes the pool's status if it changed, and answers when to come back
// if it is too early for that.
func (r *Reconciler) report(ctx context.Context, key types.NamespacedName, s *Snapshot, gone bool) (time.Duration, error) {
	c, waiting := countPods(s), r.queues.Waiting(key)
	r.metrics.observe(key, c, waiting)
	for _, took := range r.replacements.observe(key, s.Pods) {
		r.metrics.replaceSeconds.Observe(took.Seconds())
	}
	if gone {
		return 0, nil
	}
	causes := stuck(s)
	c.causes = describeCauses(causes)
	if last, ok := r.refusals.Last(key); ok {
		c.refused = last.Message
	}
	r.notices.stuck(s.Pool, causes)
	pool := s.Pool.DeepCopy()
	helper := patch.NewPatchHelper(r.client, pool)
	pending, later := r.mirror(key, pool.Status.PendingRequests, waiting)
	summarize(pool, c, pending, writtenTime{r.clock, r.times})
	conclude(pool, s.Conditions, writtenTime{r.clock, r.times})
	if !helper.HasChanges(pool) {
		return later, nil
	}
	if wait := r.statuses.wait(key); wait > 0 {
		return wait, nil
	}
	if err := helper.Patch(ctx, pool); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return 0, fmt.Errorf("reporting: %w", err)
	}
	r.statuses.wrote(key)
	if pending != s.Pool.Status.PendingRequests {
		r.pendings.wrote(key)
	}
	return later, nil
}

// mirror is what status.pendingRequests is to say, and when to come back if it
// is too early to say what there is to say.
func (r *Reconciler) mirror(key types.NamespacedName, written, waiting int32) (pending int32, later time.Duration) {
	if !pendingMoved(written, waiting) {
		return written, 0
	}
	if later = r.pendings.wait(key); later > 0 {
		return written, later
	}
	return waiting, 0
}

// writtenTime is the clock that times of conditions come from.
type writtenTime struct {
	clock.PassiveClock
	times interface{ Now() time.Time }
}

func (w writtenTime) Now() time.Time { return w.times.Now() }

// told makes known what somebody might look for.
func (r *Reconciler) told(_ context.Context, s *Snapshot, a Action) {
	switch a.Verb {
	case Start:
		r.metrics.startSeconds.Observe(s.Ages[a.Pod.UID].Seconds())
		if _, prepared := s.Preparations[a.Pod.UID]; !prepared {
			r.swapped(s, a.Pod)
		}
	case Prepare:
		r.swapped(s, a.Pod)
	case Release, Fail:
		r.ended(s, a.Pod, string(a.Verb), string(a.End.StopReason), a.End.Reason, a.End.Message)
	case Relabel:
		r.notices.warn(s.Pool, a.Pod, a.Reason, string(a.Verb), "labels of pod %s were edited by hand, and have been written back", a.Pod.Name)
	case Recycle:
		r.metrics.recycleSeconds.Observe(s.Ages[a.Pod.UID].Seconds())
		r.timedOut(s, a.Pod, string(a.Verb))
	case Bury:
		// Nobody has ended it: its Pod was taken away.
		if state := sandbox.Read(a.Pod); state.Phase.Live() && state.StopReason == "" && s.Pool != nil {
			record := sandbox.TerminalRecord(a.Pod, nil, r.clusterID, r.times.Now())
			r.ended(s, a.Pod, string(a.Verb), record.GetStopReason(), record.GetFailureReason(), record.GetFailureMessage())
		}
	case Delete:
		switch a.Reason {
		case ReasonScaleDown, ReasonPoolTerminating:
			return
		case ReasonResetTimeout, ReasonResetBackoff, ReasonIdleCrashed:
			r.notices.warn(s.Pool, a.Pod, a.Reason, string(a.Verb), "pod %s is replaced", a.Pod.Name)
		}
		r.timedOut(s, a.Pod, string(a.Verb))
		r.replacements.gone(client.ObjectKeyFromObject(s.Pool))
	}
}

// ended tells of a sandbox that has failed. One that has completed, or whose owner
// or timeout ended it, is as it should be.
func (r *Reconciler) ended(s *Snapshot, pod *corev1.Pod, action, stop, reason, message string) {
	if reason == "" {
		return
	}
	r.notices.warn(s.Pool, pod, ReasonSandboxEnded, action, "sandbox %s on pod %s ended: %s %s",
		sandbox.Read(pod).ID, pod.Name, stop, strings.TrimSpace(reason+" "+message))
}

// timedOut tells of a sandbox that one of its timeouts has ended, once its Pod is reset or replaced: whoever misses it finds
// out why it is gone. Nothing is wrong, so it is no warning.
func (r *Reconciler) timedOut(s *Snapshot, pod *corev1.Pod, action string) {
	state := sandbox.Read(pod)
	if state.Phase != sandbox.Stopping {
		return
	}
	switch reason := idle.Reason(state.FailureReason); reason {
	case idle.IdleTimeout, idle.MaxLifetime, idle.FirstActivityTimeout:
		r.notices.tell(s.Pool, pod, corev1.EventTypeNormal, Reason(reason), action, "sandbox %s on pod %s was released: %s",
			state.ID, pod.Name, state.FailureMessage)
	}
}

// swapped measures the swap of a Pod that has just become ready, if it had one.
func (r *Reconciler) swapped(s *Snapshot, pod *corev1.Pod) {
	if sandbox.Read(pod).SwapFrom != "" {
		r.latency.Took(latency.Swap, s.Ages[pod.UID])
	}
}

// firstLine is the first of several joined errors: the others mostly repeat it.
func firstLine(err error) string {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) && len(joined.Unwrap()) > 0 {
		err = joined.Unwrap()[0]
	}
	return err.Error()
}
