// SPDX-License-Identifier: Apache-2.0

package sandboxcache

import (
	"context"
	"fmt"
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandbox"
)

// livePage bounds each response to a live list.
const livePage = 500

// PodsOf returns all Pods that name a pool, from the cache. They must not be modified: copying thousands of Pods on every event would be
// most of the cost of a reconcile.
func PodsOf(ctx context.Context, cached client.Reader, pool types.NamespacedName) ([]*corev1.Pod, error) {
	found := &corev1.PodList{}
	err := cached.List(ctx, found, client.InNamespace(pool.Namespace), client.MatchingFields{byPool: pool.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("finding the pods of pool %s: %w", pool, err)
	}
	pods := make([]*corev1.Pod, len(found.Items))
	for i := range found.Items {
		pods[i] = &found.Items[i]
	}
	return pods, nil
}

// LivePods iterates over the Pods in any of these phases. It reads them live, page by page, as of one moment.
func LivePods(ctx context.Context, live client.Reader, phases ...sandbox.Phase) iter.Seq2[*corev1.Pod, error] {
	values := make([]string, len(phases))
	for i, phase := range phases {
		values[i] = string(phase)
	}
	failed := func(err error) error {
		return fmt.Errorf("finding pods by phase %s: %w", strings.Join(values, ", "), err)
	}
	return func(yield func(*corev1.Pod, error) bool) {
		in, err := labels.NewRequirement(v1alpha1.SandboxPhaseLabelKey, selection.In, values)
		if err != nil {
			yield(nil, failed(err))
			return
		}
		selector := client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(ours).Add(*in)}
		for next := ""; ; {
			page := &corev1.PodList{}
			if err := live.List(ctx, page, selector, client.Limit(livePage), client.Continue(next)); err != nil {
				yield(nil, failed(err))
				return
			}
			for i := range page.Items {
				if !yield(&page.Items[i], nil) {
					return
				}
			}
			if next = page.Continue; next == "" {
				return
			}
		}
	}
}

// PoolsOf returns the pools that an Env owns, from the cache.
func PoolsOf(ctx context.Context, reader client.Reader, env *v1alpha1.SandboxEnv) ([]v1alpha1.SandboxPool, error) {
	pools := &v1alpha1.SandboxPoolList{}
	err := reader.List(ctx, pools, client.InNamespace(env.Namespace),
		client.MatchingFields{byController: string(env.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("finding the Env's pools: %w", err)
	}
	return pools.Items, nil
}

// EnvsOf returns the Envs that name a template, from the cache.
func EnvsOf(ctx context.Context, reader client.Reader, template string) ([]v1alpha1.SandboxEnv, error) {
	envs := &v1alpha1.SandboxEnvList{}
	if err := reader.List(ctx, envs, client.MatchingFields{byTemplate: template}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("finding the Envs of template %s: %w", template, err)
	}
	return envs.Items, nil
}

// PoolsOfTemplate returns the pools that name a template, from the cache.
func PoolsOfTemplate(ctx context.Context, reader client.Reader, template string) ([]v1alpha1.SandboxPool, error) {
	pools := &v1alpha1.SandboxPoolList{}
	if err := reader.List(ctx, pools, client.MatchingFields{byPoolTemplate: template}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("finding the pools of template %s: %w", template, err)
	}
	return pools.Items, nil
}
