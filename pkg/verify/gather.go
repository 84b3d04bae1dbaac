// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

// Reader is a live reader of one cluster, not a cache: a cache may hide exactly what is looked for.
type Reader struct {
	ID     string
	Client client.Reader
}

// Gather reads what Check needs.
func Gather(ctx context.Context, readers []Reader) ([]Cluster, error) {
	clusters := make([]Cluster, 0, len(readers))
	for _, r := range readers {
		var pods corev1.PodList
		if err := r.Client.List(ctx, &pods, client.HasLabels{v1alpha1.SandboxPoolLabelKey}); err != nil {
			return nil, fmt.Errorf("listing the Pods of %s: %w", r.ID, err)
		}
		var envs v1alpha1.SandboxEnvList
		if err := r.Client.List(ctx, &envs); err != nil {
			return nil, fmt.Errorf("listing the Envs of %s: %w", r.ID, err)
		}
		clusters = append(clusters, Cluster{ID: r.ID, Pods: pods.Items, Envs: envs.Items})
	}
	return clusters, nil
}

// settleInterval is the time between two looks of Settle.
const settleInterval = 200 * time.Millisecond

// Settle looks again and again until nothing is found or ctx ends, and returns what the last look found.
func Settle(ctx context.Context, readers []Reader) ([]Finding, error) {
	ticker := time.NewTicker(settleInterval)
	defer ticker.Stop()
	var found []Finding
	for {
		clusters, err := Gather(ctx, readers)
		switch {
		case err == nil:
			if found = Check(clusters); len(found) == 0 {
				return nil, nil
			}
		case !errors.Is(err, context.DeadlineExceeded):
			return found, err
		}
		select {
		case <-ctx.Done():
			return found, nil
		case <-ticker.C:
		}
	}
}
