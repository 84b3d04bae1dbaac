// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/sandbox"
)

// parallel is how many writes keep one API server busy. More would only queue there.
const parallel = 16

// act carries out a decision. Actions on different Pods are independent, so a failed one does not stop the others.
func (r *Reconciler) act(ctx context.Context, key types.NamespacedName, s *snapshot, d decision) error {
	var (
		mu   sync.Mutex
		errs []error
		wg   sync.WaitGroup
		slot = make(chan struct{}, parallel)
	)
	crashed := false
	for _, action := range d.Actions {
		crashed = crashed || action.Reason == reasonIdleCrashed
		slot <- struct{}{}
		wg.Go(func() {
			defer func() { <-slot }()
			if err := r.perform(ctx, key, s, action); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if crashed {
		r.crashes.replaced(key)
	}
	if d.Create > 0 {
		errs = append(errs, r.create(ctx, key, s, d.Create))
	}
	return errors.Join(errs...)
}

// perform carries out one action. A lost race is not an error: the winner's write causes an event, and the next decision starts from there.
func (r *Reconciler) perform(ctx context.Context, key types.NamespacedName, s *snapshot, a action) error {
	if a.Verb == verbBury {
		a.Released = r.opts.Recorder.Released(a.Pod.UID)
	}
	err := r.try(ctx, key, s, a)
	outcome := outcomeDone
	switch {
	case patch.LostRace(err):
		log.FromContext(ctx).V(1).Info("lost a race for a pod", "pod", a.Pod.Name, "verb", a.Verb, "reason", a.Reason, "error", err.Error())
		outcome, err = outcomeLost, nil
	case err != nil:
		outcome = outcomeError
		err = fmt.Errorf("%s of pod %s (%s): %w", a.Verb, a.Pod.Name, a.Reason, err)
	default:
		r.reportAction(s, a)
	}
	r.metrics.actions.WithLabelValues(string(a.Verb), string(a.Reason), outcome).Inc()
	return err
}

func (r *Reconciler) try(ctx context.Context, key types.NamespacedName, s *snapshot, a action) error {
	now := r.opts.Times.Now()
	var body []byte
	var err error
	switch a.Verb {
	case verbDelete:
		return r.delete(ctx, key, a.Pod)
	case verbPrepare:
		if job, ok := hooks.JobOf(a.Pod, &s.Pool.Spec); ok {
			r.opts.Hooks.Begin(job)
		}
		return nil
	case verbStart:
		body = sandbox.StartPatch(a.Pod, now)
	case verbRelease:
		body = sandbox.ReleasePatch(a.Pod, &s.Pool.Spec, a.End, now)
	case verbFail:
		body = sandbox.FailPatch(a.Pod, a.End, now)
	case verbDetail:
		body, err = sandbox.DetailPatch(a.Pod, a.Detail, now)
	case verbRelabel:
		body, err = relabelPatch(a.Pod)
	case verbRecycle:
		body, err = sandbox.IdlePatch(a.Pod, &s.Pool.Spec, now), r.record(ctx, s.Pool, a)
	case verbBury:
		body, err = sandbox.BuryPatch(a.Pod, a.Released), r.record(ctx, s.Pool, a)
	case verbProtect:
		body, err = protectPatch(a.Pod, s.Pool)
	case verbMark:
		body = sandbox.MarkPatch(a.Pod, now)
	case verbUnmark:
		body = sandbox.UnmarkPatch(a.Pod)
	default:
		err = fmt.Errorf("unknown verb %q", a.Verb)
	}
	if err != nil {
		return err
	}
	err = r.patch(ctx, key, a.Pod, body)
	if err == nil && a.Verb == verbDetail {
		r.timeline.wrote(key, a.Pod.UID)
	}
	return err
}

// record passes the terminal record of the Pod's sandbox to the Recorder. This precedes the write that releases the Pod or its identity,
// because a duplicate record does no harm, and a lost one cannot be restored.
func (r *Reconciler) record(ctx context.Context, pool *v1alpha1.SandboxPool, a action) error {
	var runtimes []v1alpha1.SandboxRuntimeSpec
	if pool != nil {
		runtimes = pool.Spec.Runtimes
	}
	record := sandbox.TerminalRecord(a.Pod, runtimes, r.opts.ClusterID, r.opts.Times.Now(), a.Released)
	if record == nil {
		return nil
	}
	state := sandbox.Read(a.Pod)
	if err := r.opts.Recorder.Ended(ctx, record, state.Claim); err != nil {
		return fmt.Errorf("recording sandbox %s: %w", state.ID, err)
	}
	return nil
}

func (r *Reconciler) patch(ctx context.Context, key types.NamespacedName, pod *corev1.Pod, body []byte) error {
	// Decode the response into its own object, because pod belongs to the cache.
	answer := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := r.opts.Client.Patch(ctx, answer, client.RawPatch(types.JSONPatchType, body)); err != nil {
		return err
	}
	r.expectations.Wrote(key, pod.UID, answer.ResourceVersion)
	return nil
}

// delete deletes the Pod if it has not changed since it was read. With the uid alone, a Pod that was claimed a moment ago would be deleted
// with its sandbox.
func (r *Reconciler) delete(ctx context.Context, key types.NamespacedName, pod *corev1.Pod) error {
	r.expectations.ExpectDeletion(key, pod.UID)
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	uid, version := pod.UID, pod.ResourceVersion
	err := r.opts.Client.Delete(ctx, target, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if err != nil {
		r.expectations.DeletionSeen(key, pod.UID)
	}
	return err
}
