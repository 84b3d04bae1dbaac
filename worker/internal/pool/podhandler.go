// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/pool/expectations"
	"navix.sh/atoll/worker/internal/sandbox"
)

// podHandler updates the expectations, and then enqueues the Pod's pool. In the other order, a reconcile could wait for an event that has
// already arrived.
type podHandler struct{ expectations *expectations.Expectations }

var _ handler.EventHandler = podHandler{}

// Create implements handler.EventHandler.
func (h podHandler) Create(_ context.Context, e event.CreateEvent, q controllers.Queue) {
	h.enqueue(e.Object, q, h.seen)
}

// Update implements handler.EventHandler.
func (h podHandler) Update(_ context.Context, e event.UpdateEvent, q controllers.Queue) {
	// A Pod whose pool label was edited manually enqueues its former pool as well.
	if before, ok := e.ObjectOld.(*corev1.Pod); ok {
		if after, ok := e.ObjectNew.(*corev1.Pod); ok && sandbox.PoolOf(before) != sandbox.PoolOf(after) {
			h.enqueue(before, q, h.gone)
		}
	}
	if onlyCounts(e.ObjectOld, e.ObjectNew) {
		q.AddAfter(reconcile.Request{NamespacedName: sandbox.PoolOf(e.ObjectNew.(*corev1.Pod))}, countDelay)
		return
	}
	h.enqueue(e.ObjectNew, q, h.seen)
}

// countDelay is how long the pool's counts may lag. Claims come in bursts and compete with reconciles for the same processors. A pool's
// status is written once per statusInterval at most anyway.
const countDelay = 500 * time.Millisecond

// onlyCounts reports whether an update changes only the pool's counts: an otherwise unchanged Pod of the same pool was claimed, or became
// idle.
func onlyCounts(before, after client.Object) bool {
	was, ok := before.(*corev1.Pod)
	if !ok {
		return false
	}
	is, ok := after.(*corev1.Pod)
	if !ok || is.DeletionTimestamp != nil || sandbox.PoolOf(was) != sandbox.PoolOf(is) {
		return false
	}
	from, to := sandbox.PhaseOf(was), sandbox.PhaseOf(is)
	return from != to && (to == sandbox.Idle || from == sandbox.Idle && to == sandbox.Running)
}

// Delete implements handler.EventHandler.
func (h podHandler) Delete(_ context.Context, e event.DeleteEvent, q controllers.Queue) {
	h.enqueue(e.Object, q, h.gone)
}

// Generic implements handler.EventHandler; nothing sends generic events.
func (h podHandler) Generic(context.Context, event.GenericEvent, controllers.Queue) {}

// enqueue passes a Pod and its pool to expect, and enqueues the pool.
func (podHandler) enqueue(obj client.Object, q controllers.Queue, expect func(pool types.NamespacedName, pod *corev1.Pod)) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	pool := sandbox.PoolOf(pod)
	if pool.Name == "" {
		return
	}
	expect(pool, pod)
	q.Add(reconcile.Request{NamespacedName: pool})
}

func (h podHandler) seen(pool types.NamespacedName, pod *corev1.Pod) {
	h.expectations.CreationSeen(pool, pod.Name)
	if pod.DeletionTimestamp != nil {
		h.expectations.DeletionSeen(pool, pod.UID)
	}
}

func (h podHandler) gone(pool types.NamespacedName, pod *corev1.Pod) {
	h.expectations.PodGone(pool, pod.Name, pod.UID)
}
