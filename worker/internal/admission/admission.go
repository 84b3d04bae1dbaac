// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
)

// Reason is why a part of a change is not admitted, for machines: CamelCase, fit for a condition.
type Reason string

// Reasons that any plugin may give.
const (
	// QuotaExceeded: a limit that somebody set is reached. It may be free again later.
	QuotaExceeded Reason = "QuotaExceeded"
	// InsufficientResources: the cluster has no more.
	InsufficientResources Reason = "InsufficientResources"
	// InvalidSpec: what is asked for can never be admitted as it is.
	InvalidSpec Reason = "InvalidSpec"
)

// Change is what is about to be done to a pool.
type Change struct {
	// Env owns the pool; empty for a pool without one.
	Env types.NamespacedName
	// Key names the change whatever becomes of the process that asks: the same for the same Env (by uid), member and
	// configuration. A plugin that reserves something has one reservation a key: asked again, with less or as much as
	// before, it replaces it. Empty where nobody keeps one.
	Key string
	// Pool is the candidate. PreCreatePool may edit its labels, annotations and spec, but neither its name nor its
	// replicas; all others only read it.
	Pool *v1alpha1.SandboxPool
	// From and To are replicas before and after: From is 0 for a creation, To is 0 for a deletion. A pool that is to be made of
	// something else, with Pods that take as much as before, keeps its replicas: From is To then, and a Reason refuses it.
	From, To int32
	// Probe marks a question whose answer may not be acted upon: a plugin that reserves something does not do so.
	Probe bool
}

// PodRequest is a Pod about to be created for a pool.
type PodRequest struct {
	Pool *v1alpha1.SandboxPool
	// Pod may be edited, except for what the pool's reconciler put there under reserved prefixes.
	Pod *corev1.Pod
}

// Verdict is how much of a change is admitted.
type Verdict struct {
	// Replicas are those admitted, between Change.From and Change.To: To is all of it, From is none. A deletion or a Pod
	// is admitted whole or not at all.
	Replicas int32
	// Reason and Message say why less than everything is admitted; empty otherwise. Message is one line, for people.
	Reason  Reason
	Message string
	// RetryAfter is when asking again may have another answer; 0 if the plugin cannot tell.
	RetryAfter time.Duration
}

// Admit admits a change whole.
func Admit(to int32) Verdict { return Verdict{Replicas: to} }

// Refuse admits nothing of a change that begins at from.
func Refuse(from int32, reason Reason, message string, retryAfter time.Duration) Verdict {
	return Verdict{Replicas: from, Reason: reason, Message: message, RetryAfter: retryAfter}
}

// Whole tells whether a change that ends at to is admitted as it is. With a reason it is not, whatever the number: that
// is how the creation of a pool without replicas is refused.
func (v Verdict) Whole(to int32) bool { return v.Replicas == to && v.Reason == "" }

// PreCreatePool is asked before a pool is made.
type PreCreatePool interface {
	PreCreatePool(ctx context.Context, change *Change) (Verdict, error)
}

// PreUpdatePool is asked before a pool's replicas grow.
type PreUpdatePool interface {
	PreUpdatePool(ctx context.Context, change *Change) (Verdict, error)
}

// PreDeletePool is asked before a pool is deleted because its member is gone. A pool that a user deletes is not asked
// about.
type PreDeletePool interface {
	PreDeletePool(ctx context.Context, change *Change) (Verdict, error)
}

// PreCreatePod is asked before each Pod of a pool is made.
type PreCreatePod interface {
	PreCreatePod(ctx context.Context, request *PodRequest) (Verdict, error)
}

// Plugin has a name, for messages and metrics, and implements at least one of the interfaces above.
type Plugin interface {
	Name() string
}
