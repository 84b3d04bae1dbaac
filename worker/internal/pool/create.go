// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"navix.sh/atoll/worker/internal/admission"
)

// maxCreating is the maximum number of concurrent creates for a pool.
const maxCreating = 2 * parallel

// create creates n Pods in batches of 1, 2, 4, …; once a batch has reached maxCreating, the next one has all remaining Pods. It stops after
// a batch with a failure or a refusal: an exhausted quota or a refused template should cost a few requests, not hundreds.
func (r *Reconciler) create(ctx context.Context, key types.NamespacedName, s *snapshot, n int) error {
	created := 0
	for size := 1; n > 0; size *= 2 {
		batch := min(size, n)
		if size >= maxCreating {
			batch = n
		}
		b := r.createBatch(ctx, key, s, batch)
		if created += b.created; created > 0 {
			r.failures.forget(key)
		}
		if b.refusal != nil {
			r.refused(ctx, key, s, *b.refusal, created)
		}
		if err := errors.Join(b.errs...); err != nil {
			r.notices.warn(s.Pool, nil, reasonCreationFailed, "Create", "creating a pod: %s", firstLine(err))
			if at := slices.IndexFunc(b.errs, against); at >= 0 && created == 0 && r.failures.steady(key, s.Revision) {
				r.refused(ctx, key, s, admission.Refuse(0, admission.InvalidSpec, b.errs[at].Error(), 0), 0)
				return nil
			}
			return fmt.Errorf("creating pods: %w", err)
		}
		if b.refusal != nil {
			return nil
		}
		n -= batch
	}
	r.opts.Refusals.Admitted(key)
	return nil
}

// refused makes the pool wait before it creates Pods again. It reports the refusal once, because a limit is no error and tends to stay.
func (r *Reconciler) refused(ctx context.Context, key types.NamespacedName, s *snapshot, v admission.Verdict, created int) {
	if !r.opts.Refusals.Refused(key, s.Revision, v, created > 0) {
		return
	}
	log.FromContext(ctx).Info("pods are refused", "reason", v.Reason, "message", v.Message)
	r.notices.warn(s.Pool, nil, reason(v.Reason), "Create", "pods are refused, and tried again at least once a minute: %s", v.Message)
}

// batch is the outcome of one batch.
type batch struct {
	created int
	refusal *admission.Verdict
	errs    []error
}

func (r *Reconciler) createBatch(ctx context.Context, key types.NamespacedName, s *snapshot, n int) batch {
	var (
		wg sync.WaitGroup
		mu sync.Mutex
		b  batch

		slots = make(chan struct{}, maxCreating)
		over  = func() bool {
			mu.Lock()
			defer mu.Unlock()
			return b.refusal != nil || len(b.errs) > 0
		}
	)
	for range n {
		slots <- struct{}{}
		if over() {
			break
		}
		pod := newPod(s.Pool, s.Revision, podName(s.Pool), r.opts.SandboxdImage)
		wg.Go(func() {
			defer func() { <-slots }()
			refusal, outcome, err := r.createPod(ctx, key, s, pod)
			r.metrics.actions.WithLabelValues("Create", string(scaleUp), outcome).Inc()
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				b.errs = append(b.errs, err)
			case refusal != nil:
				b.refusal = refusal
			default:
				b.created++
			}
		})
	}
	wg.Wait()
	return b
}

// isUnclear reports whether a failed write may have taken effect.
func isUnclear(err error) bool {
	var status apierrors.APIStatus
	return err != nil && (!errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError)
}

// createPod creates a Pod if the plugins admit it. It returns a verdict if they or the API server refuse it.
func (r *Reconciler) createPod(
	ctx context.Context, key types.NamespacedName, s *snapshot, pod *corev1.Pod,
) (*admission.Verdict, string, error) {
	request := &admission.PodRequest{Pool: s.Pool, Pod: pod}
	verdict, err := r.opts.Admission.PreCreatePod(ctx, request)
	if err != nil {
		return nil, outcomeError, err
	}
	if !verdict.Whole(1) {
		return &verdict, outcomeRefused, nil
	}
	// Expect the Pod before the request, because its event may arrive before the response.
	r.expectations.ExpectCreation(key, pod.Name)
	err = r.opts.Client.Create(ctx, request.Pod)
	unclear := isUnclear(err)
	if unclear {
		// Use the same name again, so that a Pod which the first request has created is not created twice (I9).
		err = r.opts.Client.Create(ctx, request.Pod)
	}
	if err == nil || apierrors.IsAlreadyExists(err) { // names are random, so an existing Pod is this one
		return nil, outcomeDone, nil
	}
	r.expectations.CreationSeen(key, pod.Name)
	if unclear {
		return nil, outcomeError, err // a refusal may be due to the Pod that the first request has created
	}
	if refusal, ok := admission.OfPodCreation(err); ok {
		return &refusal, outcomeRefused, nil
	}
	return nil, outcomeError, err
}
