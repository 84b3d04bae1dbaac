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

// Sandboxes finds Pods. Its results may be the cache's and must not be changed.
type Sandboxes struct {
	reader client.Reader
	live   bool
}

// Cached reads from informers that have the indexes.
func Cached(reader client.Reader) Sandboxes { return Sandboxes{reader: reader} }

// Live reads from the API server.
func Live(reader client.Reader) Sandboxes { return Sandboxes{reader: reader, live: true} }

// InPool returns all Pods that name a pool.
func (s Sandboxes) InPool(ctx context.Context, pool types.NamespacedName) ([]*corev1.Pod, error) {
	return collect(s.find(ctx, pool.Namespace, query{
		field: byPool, values: []string{pool.Name}, labels: where{v1alpha1.SandboxPoolLabelKey: {pool.Name}},
	}))
}

// InPhase iterates over the Pods in any of these phases. A live read is of one moment, and comes page by page.
func (s Sandboxes) InPhase(ctx context.Context, phases ...sandbox.Phase) iter.Seq2[*corev1.Pod, error] {
	values := make([]string, len(phases))
	for i, phase := range phases {
		values[i] = string(phase)
	}
	return s.find(ctx, "", query{field: byPhase, values: values, labels: where{v1alpha1.SandboxPhaseLabelKey: values}})
}

// where are the values that a label may have.
type where map[string][]string

// query is one question, for an index and for an API server.
type query struct {
	field  string
	values []string
	labels where
}

func (q *query) selector() (labels.Selector, error) {
	selector := labels.SelectorFromSet(ours)
	for key, values := range q.labels {
		r, err := labels.NewRequirement(key, selection.In, values)
		if err != nil {
			return nil, err
		}
		selector = selector.Add(*r)
	}
	return selector, nil
}

func (s Sandboxes) find(ctx context.Context, namespace string, q query) iter.Seq2[*corev1.Pod, error] {
	if s.live {
		return s.ask(ctx, namespace, &q)
	}
	return func(yield func(*corev1.Pod, error) bool) {
		for _, value := range q.values {
			found := &corev1.PodList{}
			// Copying thousands of Pods on every event would be most of the cost of a reconcile.
			err := s.reader.List(ctx, found, client.InNamespace(namespace), client.MatchingFields{q.field: value}, client.UnsafeDisableDeepCopy)
			if err != nil {
				yield(nil, q.failed(err))
				return
			}
			for i := range found.Items {
				if !yield(&found.Items[i], nil) {
					return
				}
			}
		}
	}
}

func (s Sandboxes) ask(ctx context.Context, namespace string, q *query) iter.Seq2[*corev1.Pod, error] {
	return func(yield func(*corev1.Pod, error) bool) {
		selector, err := q.selector()
		if err != nil {
			yield(nil, q.failed(err))
			return
		}
		for next := ""; ; {
			page := &corev1.PodList{}
			err := s.reader.List(ctx, page, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector},
				client.Limit(livePage), client.Continue(next))
			if err != nil {
				yield(nil, q.failed(err))
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

func (q *query) failed(err error) error {
	return fmt.Errorf("finding pods by %s %s: %w", q.field, strings.Join(q.values, ", "), err)
}

func collect(pods iter.Seq2[*corev1.Pod, error]) ([]*corev1.Pod, error) {
	var out []*corev1.Pod
	for pod, err := range pods {
		if err != nil {
			return nil, err
		}
		out = append(out, pod)
	}
	return out, nil
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
