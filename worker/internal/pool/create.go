// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// create makes n Pods in batches of 1, 2, 4, … up to what the API server takes
// at once. A batch with a failure is the last one: a quota that is used up or a
// template that is refused costs a few requests and not hundreds.
func (r *Reconciler) create(ctx context.Context, key types.NamespacedName, s *Snapshot, n int) error {
	for batch := 1; n > 0; batch = min(2*batch, 2*parallel) {
		batch = min(batch, n)
		if err := r.createBatch(ctx, key, s, batch); err != nil {
			r.notices.warn(s.Pool, nil, ReasonCreationFailed, "Create", "creating a pod: %s", firstLine(err))
			return fmt.Errorf("creating pods: %w", err)
		}
		n -= batch
	}
	return nil
}

func (r *Reconciler) createBatch(ctx context.Context, key types.NamespacedName, s *Snapshot, n int) error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		pod := newPod(s.Pool, s.Revision, podName(s.Pool))
		// Before the request: its event may be here before its answer.
		r.expectations.ExpectCreation(key, pod.Name)
		wg.Go(func() {
			err := r.client.Create(ctx, pod)
			outcome := outcomeDone
			if err != nil {
				outcome = outcomeError
				r.expectations.CreationSeen(key, pod.Name)
			}
			if apierrors.IsAlreadyExists(err) {
				// The name was taken. The next round chooses another.
				err = nil
			}
			errs[i] = err
			r.metrics.actions.WithLabelValues("Create", string(ScaleUp), outcome).Inc()
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
