// SPDX-License-Identifier: Apache-2.0

package sandboxcache

import (
	"context"
	"fmt"
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// ByID returns the Pod of a sandbox, or an error for which apierrors.IsNotFound is true.
func (s Sandboxes) ByID(ctx context.Context, id string) (*corev1.Pod, error) {
	for pod, err := range s.find(ctx, "", query{field: bySandbox, values: []string{id}, labels: where{v1alpha1.SandboxIDLabelKey: {id}}}) {
		return pod, err
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "sandboxes"}, id)
}

// ByClaimKey returns the Pods with a claim key, by its hash: more than one while a duplicate ends.
func (s Sandboxes) ByClaimKey(ctx context.Context, hash string) ([]*corev1.Pod, error) {
	return collect(s.find(ctx, "", query{field: byClaimKey, values: []string{hash}, labels: where{v1alpha1.ClaimKeyHashLabelKey: {hash}}}))
}

// InPool returns all Pods that name a pool.
func (s Sandboxes) InPool(ctx context.Context, pool types.NamespacedName) ([]*corev1.Pod, error) {
	return collect(s.find(ctx, pool.Namespace, query{
		field: byPool, values: []string{pool.Name}, labels: where{v1alpha1.SandboxPoolLabelKey: {pool.Name}},
	}))
}

// OfOwner returns the sandboxes of a team's user, in one namespace or in all. An empty name matches sandboxes without one.
func (s Sandboxes) OfOwner(ctx context.Context, namespace, team, user string) ([]*corev1.Pod, error) {
	t, u := hashed(team), hashed(user)
	return collect(s.find(ctx, namespace, query{
		field: byOwner, values: []string{owner(t, u)}, claimed: true, labels: where{v1alpha1.LabelTeam: {t}, v1alpha1.LabelUser: {u}},
	}))
}

// OfUser returns the sandboxes of a user in any team.
func (s Sandboxes) OfUser(ctx context.Context, namespace, user string) ([]*corev1.Pod, error) {
	u := hashed(user)
	return collect(s.find(ctx, namespace, query{
		field: byUser, values: []string{u}, claimed: true, labels: where{v1alpha1.LabelUser: {u}},
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

// hashed returns the label value of a name.
func hashed(name string) string {
	if name == "" {
		return ""
	}
	return sandbox.HashName(name)
}

// where are the values that a label may have; "" means that it is missing.
type where map[string][]string

// query is one question, for an index and for an API server.
type query struct {
	field   string
	values  []string
	labels  where
	claimed bool // only Pods with a sandbox
}

func (q *query) selector() (labels.Selector, error) {
	selector := labels.SelectorFromSet(ours)
	add := func(key string, op selection.Operator, values []string) error {
		r, err := labels.NewRequirement(key, op, values)
		if err == nil {
			selector = selector.Add(*r)
		}
		return err
	}
	for key, values := range q.labels {
		op := selection.In
		if len(values) == 1 && values[0] == "" {
			op, values = selection.DoesNotExist, nil
		}
		if err := add(key, op, values); err != nil {
			return nil, err
		}
	}
	if q.claimed {
		if err := add(v1alpha1.SandboxIDLabelKey, selection.Exists, nil); err != nil {
			return nil, err
		}
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
