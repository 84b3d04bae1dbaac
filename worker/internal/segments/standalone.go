// SPDX-License-Identifier: Apache-2.0

package segments

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/worker/internal/sandbox"
)

// A pool without an Env is reported, and claimed from, as the one member of an Env of its name. If an Env of that name exists, it
// takes precedence. Adoption creates the same Env for such a pool, so callers notice no difference.

// envOf returns the Env that a pool is reported under.
func envOf(pool client.Object) segment.Key {
	return segment.Key{Namespace: pool.GetNamespace(), Name: sandbox.EnvOfPool(pool)}
}

// standalone returns the Env that stands for a pool without one; nil if the pool does not exist.
func (s *Source) standalone(ctx context.Context, k segment.Key) (*v1alpha1.SandboxEnv, error) {
	pool := &v1alpha1.SandboxPool{}
	err := s.Cache.Get(ctx, types.NamespacedName{Namespace: k.Namespace, Name: k.Name}, pool)
	if apierrors.IsNotFound(err) || err == nil && envOf(pool) != k {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s.standIn(pool), nil
}

// standIn returns the Env that adoption would create for a pool, with the fields that are reported.
func (s *Source) standIn(pool *v1alpha1.SandboxPool) *v1alpha1.SandboxEnv {
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{
		Namespace: pool.Namespace, Name: pool.Name, UID: pool.UID, Generation: pool.Generation,
	}}
	env.Spec.TemplateRef.Name = pool.Spec.TemplateName
	member := v1alpha1.EnvClusterMember{Name: pool.Name}
	member.Spec.Replicas = pool.Spec.Replicas
	env.Spec.Clusters = []v1alpha1.EnvClusterSpec{{ClusterID: s.ClusterID, Members: []v1alpha1.EnvClusterMember{member}}}
	if why := waitsForTemplate(pool); why != nil {
		env.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxEnvConditionReady, Status: metav1.ConditionFalse,
			Reason: why.Reason, Message: pool.Name + ": " + why.Message, ObservedGeneration: pool.Generation}}
		env.Status.Clusters = []v1alpha1.EnvClusterStatus{{ClusterID: s.ClusterID, IsLocal: true, ObservedMembers: []v1alpha1.EnvObservedMember{
			{Name: pool.Name, State: v1alpha1.ObservedMemberStateInconsistent}}}}
	}
	return env
}

// waitsForTemplate returns the condition that says why a pool cannot have Pods until a person fixes it, or nil if it can.
func waitsForTemplate(pool *v1alpha1.SandboxPool) *metav1.Condition {
	if len(pool.Spec.Template.Spec.Containers) > 0 && (pool.Spec.TemplateName == "" ||
		pool.Annotations[v1alpha1.SandboxPoolTemplateNameAnnotationKey] != "") {
		return nil
	}
	c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.SandboxPoolConditionTemplateConsistent)
	if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != pool.Generation {
		return nil
	}
	return c
}

// eachStandalone calls do for each pool that stands in for a missing Env.
func (s *Source) eachStandalone(ctx context.Context, do func(*v1alpha1.SandboxPool) error) error {
	pools := &v1alpha1.SandboxPoolList{}
	if err := s.Cache.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing pools: %w", err)
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		if envOf(pool) != (segment.Key{Namespace: pool.Namespace, Name: pool.Name}) {
			continue
		}
		err := s.Cache.Get(ctx, client.ObjectKeyFromObject(pool), &v1alpha1.SandboxEnv{})
		if err == nil {
			continue
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading the env of pool %s/%s: %w", pool.Namespace, pool.Name, err)
		}
		if err := do(pool); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) addStandalone(ctx context.Context, out []*segment.Segment) ([]*segment.Segment, error) {
	err := s.eachStandalone(ctx, func(pool *v1alpha1.SandboxPool) error {
		one, err := s.describe(ctx, s.standIn(pool))
		out = append(out, one)
		return err
	})
	return out, err
}

func (s *Source) markStandalone(ctx context.Context) error {
	return s.eachStandalone(ctx, func(pool *v1alpha1.SandboxPool) error {
		s.Mark(segment.Key{Namespace: pool.Namespace, Name: pool.Name})
		return nil
	})
}
