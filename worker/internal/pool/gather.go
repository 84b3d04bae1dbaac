// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

const (
	// defaultWindow is the protection window of a pool without a scaling group. It equals the schema's default for pools with a group.
	defaultWindow = 10 * time.Second
)

// gather reads a pool's snapshot from the cache.
func (r *Reconciler) gather(ctx context.Context, key types.NamespacedName) (snapshot, error) {
	// Read the expectations before listing Pods. Otherwise an event in between could settle the expectation of a Pod that the list lacks.
	s := snapshot{Settled: r.expectations.Settled(key)}
	pool := &v1alpha1.SandboxPool{}
	switch err := r.opts.Client.Get(ctx, key, pool); {
	case err == nil:
		s.Pool = pool
	case !apierrors.IsNotFound(err):
		return snapshot{}, fmt.Errorf("reading pool: %w", err)
	}
	var err error
	if s.Pods, err = r.podsOf(ctx, key, s.Pool); err != nil {
		return snapshot{}, err
	}
	if s.Pool != nil {
		if s.Window, s.Autoscaled, err = r.protectionWindow(ctx, pool); err != nil {
			return snapshot{}, err
		}
	}
	stages := map[types.UID]string{}
	if stage := surplusOf(&s); stage != "" {
		stages[surplusStage] = stage
	}
	s.Stale = map[types.UID]bool{}
	for _, pod := range s.Pods {
		if stage := stageOf(pod); stage != "" {
			stages[pod.UID] = stage
		}
		if r.expectations.Stale(key, pod.UID, pod.ResourceVersion) {
			s.Stale[pod.UID] = true
		}
	}
	s.Ages = r.timeline.observe(key, stages)
	s.Noted = r.timeline.noted(key)
	if s.Pool == nil {
		r.opts.Hooks.Follow(key, nil)
		return s, nil
	}
	if err := r.gatherGate(ctx, &s); err != nil || s.Paused {
		return s, err
	}
	s.Preparations = r.opts.Hooks.Follow(key, jobs(&s))
	s.CrashBackoff = r.crashes.remaining(key)
	s.HeldBack, s.NewPod = r.backoffs.observe(s.Pods), newPodTime(s.Pods)
	if s.Revision, err = revisionOf(&pool.Spec, r.opts.SandboxdImage); err != nil {
		return snapshot{}, err
	}
	if s.Unrendered, err = unrenderedRevisionOf(&pool.Spec, r.opts.SandboxdImage); err != nil {
		return snapshot{}, err
	}
	s.Refused = r.opts.Refusals.Hold(key, s.Revision)
	return s, nil
}

// jobs returns the hook jobs of all starting Pods, ready or not. A Pod that becomes unready while its hooks run must not run them again.
func jobs(s *snapshot) []hooks.Job {
	var all []hooks.Job
	for _, pod := range s.Pods {
		if pod.DeletionTimestamp != nil || sandbox.PhaseOf(pod) != sandbox.Starting {
			continue
		}
		if job, ok := hooks.JobOf(pod, &s.Pool.Spec); ok {
			all = append(all, job)
		}
	}
	return all
}

// podsOf lists the Pods that the pool controls, and those of an earlier pool of its name that are being deleted. If the pool is gone, it
// lists all Pods with the pool's label, because a Pod whose owner is gone still waits for its record.
func (r *Reconciler) podsOf(ctx context.Context, key types.NamespacedName, pool *v1alpha1.SandboxPool) ([]*corev1.Pod, error) {
	all, err := sandboxcache.PodsOf(ctx, r.opts.Client, key)
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	pods := make([]*corev1.Pod, 0, len(all))
	for _, pod := range all {
		if pool == nil || metav1.IsControlledBy(pod, pool) || sandbox.PhaseOf(pod) != "" && (orphaned(pod) || pod.DeletionTimestamp != nil) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods, nil
}

// protectionWindow returns the window of the pool's scaling group, and whether that group is enabled.
func (r *Reconciler) protectionWindow(ctx context.Context, pool *v1alpha1.SandboxPool) (window time.Duration, autoscaled bool, err error) {
	name, group := pool.Labels[v1alpha1.LabelEnv], pool.Labels[v1alpha1.LabelScalingGroup]
	if name == "" || group == "" {
		return defaultWindow, false, nil
	}
	env := &v1alpha1.SandboxEnv{}
	err = r.opts.Client.Get(ctx, types.NamespacedName{Namespace: pool.Namespace, Name: name}, env, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return defaultWindow, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("reading env: %w", err)
	}
	if g := env.ScalingGroup(group); g != nil {
		return time.Duration(g.ScaleDownPolicy.ProtectionWindowSeconds) * time.Second, g.Enabled, nil
	}
	return defaultWindow, false, nil
}
