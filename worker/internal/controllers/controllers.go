// SPDX-License-Identifier: Apache-2.0

// Package controllers provides what the worker's controllers share: their field manager, their retry intervals, and the settings of their
// work queues.
package controllers

import (
	"math/rand/v2"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// FieldManager is the name under which the worker writes objects and records Events.
	FieldManager = "atoll-worker"
	// RetryStale is how soon an object is reconciled again if it has changed during a reconcile. Its event usually comes first.
	RetryStale = 100 * time.Millisecond
	// RetryPaused is how soon an object is reconciled again if another controller manages it.
	RetryPaused = 10 * time.Second

	retryMin    = 50 * time.Millisecond
	resync      = 10 * time.Second
	resyncShare = 0.2
)

// Queue is a controller's work queue.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Options returns the options of a controller that reconciles the given number of objects at once. A failed object is retried after 50 ms
// at first, and after longest at most. The default limiter would also limit all objects together to 10 a second.
func Options(workers int, longest time.Duration) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		// At shutdown controller-runtime's own queue can wait forever for a worker that has left (its issue 3538).
		UsePriorityQueue: new(false),
		RateLimiter:      workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryMin, longest),
	}
}

// NotStatus passes all changes except those of status alone, which the controllers write themselves.
func NotStatus() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{},
		predicate.AnnotationChangedPredicate{})
}

// Resync returns when to reconcile an object without an event: after 10 s, plus or minus a fifth, so that objects created together do not
// stay synchronized.
func Resync() time.Duration {
	return time.Duration(float64(resync) * (1 + resyncShare*(2*rand.Float64()-1)))
}
