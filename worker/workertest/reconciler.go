// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandboxes"
)

const (
	reconcileEvery = time.Second
	// expectFor is how long a new Pod may be missing from the cache.
	expectFor = 5 * time.Second
)

// reconciler replaces the real reconciler of pools: it creates Pods up to each pool's replicas, starts and ends sandboxes, and removes
// Pods. Package sandbox defines the life cycle of a Pod. This reconciler does not limit its pace as the real one does.
type reconciler struct {
	process   *process
	sandboxes *sandboxes.Service
	informers *informers
	client    client.Client
	woken     chan struct{} // one token

	made     uint64
	expected map[string]map[string]time.Time // new Pods that the cache lacks, by pool
}

func newReconciler(p *process) (*reconciler, error) {
	r := &reconciler{
		process: p, sandboxes: p.sandboxes, informers: p.informers, client: p.client, woken: make(chan struct{}, 1),
		expected: map[string]map[string]time.Time{},
	}
	wake := func(any) {
		select {
		case r.woken <- struct{}{}:
		default:
		}
	}
	for _, kind := range []*kind{podKind, kindOf(&v1alpha1.SandboxPool{})} {
		_, err := p.informers.kinds[kind].AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: wake, UpdateFunc: func(_, o any) { wake(o) }, DeleteFunc: wake,
		})
		if err != nil {
			return nil, fmt.Errorf("watching: %w", err)
		}
	}
	return r, nil
}

func (r *reconciler) run(ctx context.Context) {
	if !r.informers.WaitForCacheSync(ctx) {
		return
	}
	ticker := time.NewTicker(reconcileEvery)
	defer ticker.Stop()
	for {
		r.pass(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-r.woken:
		}
	}
}

// pass reconciles all pools once. Failures are retried by the next pass.
func (r *reconciler) pass(ctx context.Context) {
	pools := map[types.NamespacedName]*v1alpha1.SandboxPool{}
	have := map[types.NamespacedName][]*corev1.Pod{}
	for _, object := range r.informers.kinds[kindOf(&v1alpha1.SandboxPool{})].GetStore().List() {
		p := object.(*v1alpha1.SandboxPool)
		pools[client.ObjectKeyFromObject(p)] = p
		have[client.ObjectKeyFromObject(p)] = nil
	}
	for _, object := range r.informers.kinds[podKind].GetStore().List() {
		pod := object.(*corev1.Pod)
		delete(r.expected[sandbox.PoolOf(pod).Name], pod.Name)
		have[sandbox.PoolOf(pod)] = append(have[sandbox.PoolOf(pod)], pod)
	}
	for key, pods := range have {
		slices.SortFunc(pods, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		if err := r.reconcile(ctx, key, pools[key], pods); err != nil && ctx.Err() == nil {
			r.process.log.V(1).Info("a pool is not as it should be", "pool", key.String(), "error", err.Error())
		}
	}
}

func (r *reconciler) reconcile(ctx context.Context, key types.NamespacedName, pool *v1alpha1.SandboxPool, pods []*corev1.Pod) error {
	var errs []error
	var idle []*corev1.Pod
	var count int32
	status := v1alpha1.SandboxPoolStatus{}
	for _, pod := range pods {
		errs = append(errs, r.tend(ctx, pool, pod))
		if pod.DeletionTimestamp != nil {
			continue
		}
		count++
		switch sandbox.PhaseOf(pod) {
		case sandbox.Idle:
			status.IdleReplicas++
			idle = append(idle, pod)
		case sandbox.Starting:
			status.StartingReplicas++
		case sandbox.Running:
			status.RunningReplicas++
		}
	}
	if pool == nil {
		for _, pod := range idle {
			errs = append(errs, r.remove(ctx, pod))
		}
		return errors.Join(errs...)
	}
	errs = append(errs, r.scale(ctx, key, pool, idle, count), r.report(pool, &status))
	return errors.Join(errs...)
}

func (r *reconciler) scale(
	ctx context.Context, key types.NamespacedName, pool *v1alpha1.SandboxPool, idle []*corev1.Pod, count int32,
) error {
	for name, since := range r.expected[key.Name] {
		if time.Since(since) > expectFor {
			delete(r.expected[key.Name], name)
		} else {
			count++
		}
	}
	for ; count < pool.Spec.Replicas; count++ {
		if err := r.create(ctx, key, pool); err != nil {
			return err
		}
	}
	for ; count > pool.Spec.Replicas && len(idle) > 0; count-- {
		if err := r.remove(ctx, idle[0]); err != nil {
			return err
		}
		idle = idle[1:]
	}
	return nil
}

func (r *reconciler) create(ctx context.Context, key types.NamespacedName, pool *v1alpha1.SandboxPool) error {
	r.made++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: fmt.Sprintf("%s-%s-%d", key.Name, r.process.name, r.made),
		Finalizers: []string{v1alpha1.SandboxProtectionFinalizer}, Annotations: map[string]string{v1alpha1.TemplateRevisionAnnotationKey: "1"},
		Labels: map[string]string{
			v1alpha1.ManagedByLabelKey: v1alpha1.ManagedBySandboxAPIServer, v1alpha1.SandboxPoolLabelKey: key.Name,
			v1alpha1.SandboxPhaseLabelKey: v1alpha1.SandboxPhaseIdle, v1alpha1.LabelEnv: pool.Labels[v1alpha1.LabelEnv],
		},
	}, Spec: *pool.Spec.Template.Spec.DeepCopy()}
	if r.expected[key.Name] == nil {
		r.expected[key.Name] = map[string]time.Time{}
	}
	r.expected[key.Name][pod.Name] = time.Now()
	return r.client.Create(ctx, pod)
}

// remove deletes a Pod if it has not changed since it was read, because it may have been claimed meanwhile.
func (r *reconciler) remove(ctx context.Context, pod *corev1.Pod) error {
	only := client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
	return lostRace(r.client.Delete(ctx, pod.DeepCopy(), only))
}

// tend takes the next step in a Pod's life cycle.
func (r *reconciler) tend(ctx context.Context, pool *v1alpha1.SandboxPool, pod *corev1.Pod) error {
	now := r.process.times.Now()
	switch phase := sandbox.PhaseOf(pod); {
	case pod.DeletionTimestamp != nil:
		return r.finalize(ctx, pod)
	case phase == sandbox.Starting && sandbox.Observe(pod).Progress == sandbox.Up:
		return r.patch(ctx, pod, sandbox.StartPatch(pod, now))
	case phase == sandbox.Stopping && pool != nil && sandbox.Recyclable(pod, &pool.Spec).Reset:
		if !sandbox.ResetDone(pod, &pool.Spec) {
			return nil
		}
		return errors.Join(r.record(ctx, pod), r.patch(ctx, pod, sandbox.IdlePatch(pod, &pool.Spec, now)))
	case phase == sandbox.Stopping, phase == sandbox.Failed:
		return r.remove(ctx, pod)
	}
	return nil
}

// finalize stores the record of a Pod's sandbox, and then removes the Pod's finalizer.
func (r *reconciler) finalize(ctx context.Context, pod *corev1.Pod) error {
	if len(pod.Finalizers) == 0 {
		return nil
	}
	if err := r.record(ctx, pod); err != nil {
		return err
	}
	return r.patch(ctx, pod, fmt.Appendf(nil,
		`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"remove","path":"/metadata/finalizers"}]`, pod.UID))
}

func (r *reconciler) record(ctx context.Context, pod *corev1.Pod) error {
	record := sandbox.TerminalRecord(pod, nil, r.process.cluster.ID, r.process.times.Now(), r.sandboxes.Released(pod.UID))
	if record == nil {
		return nil
	}
	state := sandbox.Read(pod)
	return r.sandboxes.Ended(ctx, record, state.Claim)
}

func (r *reconciler) patch(ctx context.Context, pod *corev1.Pod, body []byte) error {
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	return lostRace(r.client.Patch(ctx, target, client.RawPatch(types.JSONPatchType, body)))
}

// report writes the counts directly, without a request, because no fault is tested there.
func (r *reconciler) report(pool *v1alpha1.SandboxPool, seen *v1alpha1.SandboxPoolStatus) error {
	same := pool.Status.IdleReplicas == seen.IdleReplicas && pool.Status.RunningReplicas == seen.RunningReplicas &&
		pool.Status.StartingReplicas == seen.StartingReplicas
	if same || r.process.wire.dead() {
		return nil
	}
	_, err := r.process.cluster.server.update(nameOf(pool), func(o client.Object) (client.Object, error) {
		if o.GetUID() == pool.UID {
			o.(*v1alpha1.SandboxPool).Status = *seen
		}
		return o, nil
	})
	return lostRace(err)
}

func lostRace(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // the winner's write has caused an event
	}
	return err
}
