// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
)

// Reason is why part of a change is not admitted, in CamelCase, as a condition needs it.
type Reason string

// Reasons that any plugin may return.
const (
	// QuotaExceeded: a configured limit is reached. There may be room again later.
	QuotaExceeded Reason = "QuotaExceeded"
	// InsufficientResources: the cluster has no more.
	InsufficientResources Reason = "InsufficientResources"
	// InvalidSpec: the request can never be admitted as it is.
	InvalidSpec Reason = "InvalidSpec"
)

// Change is a planned change of a pool.
type Change struct {
	// Env owns the pool; empty for a pool without one.
	Env types.NamespacedName
	// Key identifies the change across restarts of the caller: it is the same for the same Env (by uid), member and configuration. A plugin
	// with reservations has one per key: a later request with the same amount or less replaces it. An empty key means that the change needs no
	// reservation.
	Key string
	// Pool is the candidate. PreCreatePool may edit its labels, annotations and spec, but neither its name nor its replicas; the
	// other hooks only read it.
	Pool *v1alpha1.SandboxPool
	// From and To are replicas before and after: From is 0 for a creation, To is 0 for a deletion. If a pool gets another
	// template, and its Pods need no more than before, From equals To, and a Reason refuses the change.
	From, To int32
	// Probe means that the caller will not act on the Verdict. A plugin must not reserve anything.
	Probe bool
}

// PodRequest is a Pod about to be created for a pool.
type PodRequest struct {
	Pool *v1alpha1.SandboxPool
	// Pod may be edited, except for what the pool's reconciler set under reserved prefixes.
	Pod *corev1.Pod
}

// Verdict is how much of a change is admitted.
type Verdict struct {
	// Replicas is the admitted number, between Change.From and Change.To: To is everything, From is nothing. A deletion or a Pod is admitted
	// whole or not at all.
	Replicas int32
	// Reason and Message say why less than everything is admitted, and are empty otherwise. Message is one line, for users.
	Reason  Reason
	Message string
	// RetryAfter is when asking again may have another outcome, or 0 if the plugin does not know.
	RetryAfter time.Duration
}

// Admit admits a change whole.
func Admit(to int32) Verdict { return Verdict{Replicas: to} }

// Refuse admits nothing of a change that begins at from.
func Refuse(from int32, reason Reason, message string, retryAfter time.Duration) Verdict {
	return Verdict{Replicas: from, Reason: reason, Message: message, RetryAfter: retryAfter}
}

// Whole reports whether a change that ends at to is admitted entirely. With a Reason it is not, whatever the number: this is how the
// creation of a pool without replicas is refused.
func (v Verdict) Whole(to int32) bool { return v.Replicas == to && v.Reason == "" }

// PreCreatePool is asked before a pool is created.
type PreCreatePool interface {
	PreCreatePool(ctx context.Context, change *Change) (Verdict, error)
}

// PreUpdatePool is asked before a pool's replicas grow.
type PreUpdatePool interface {
	PreUpdatePool(ctx context.Context, change *Change) (Verdict, error)
}

// PreDeletePool is asked before a pool is deleted because its member was removed, but not before a user's delete of a pool.
type PreDeletePool interface {
	PreDeletePool(ctx context.Context, change *Change) (Verdict, error)
}

// PreCreatePod is asked before each Pod of a pool is created.
type PreCreatePod interface {
	PreCreatePod(ctx context.Context, request *PodRequest) (Verdict, error)
}

// Plugin has a name, for messages and metrics, and implements at least one of the interfaces above.
type Plugin interface {
	Name() string
}
