// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// A pool whose Pods are refused asks again after 1 s, 2 s, and so on to a minute; a plugin may ask for longer than the
	// former, and not than the latter: a quota that became free is noticed within it.
	holdMin = time.Second
	holdMax = time.Minute
	// refusalForgotten is longer than any hold, so that a pool which still asks is known to be refused without a gap. One
	// that wants no further Pods does not ask, and after that long may be let grow to find out.
	refusalForgotten = 90 * time.Second
)

// Refusal is why a pool's latest Pod was refused.
type Refusal struct {
	Reason  Reason
	Message string
	// Age is since the latest time, on the monotonic clock.
	Age time.Duration
	// RetryAfter is for how long the pool makes no further Pods.
	RetryAfter time.Duration
}

// Refusals remembers, for each pool, that the cluster or a plugin refused it a Pod. The pool's reconciler writes it, and
// waits by it. As a plugin it admits no growth of a pool that does not get the Pods it wants already, so that whoever
// raises replicas needs no other source. A nil one remembers nothing. Memory is bounded by the pools (I10).
type Refusals struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	pools map[types.NamespacedName]refused
}

type refused struct {
	Verdict
	// subject is what was refused, so far as the pool can change it: with another one it asks at once.
	subject string
	delay   time.Duration // before jitter
	hold    time.Duration
	last    time.Time
}

// NewRefusals makes an empty memory.
func NewRefusals(clk clock.PassiveClock) *Refusals {
	return &Refusals{clock: clk, pools: map[types.NamespacedName]refused{}}
}

// Refused notes a refusal, and answers whether it is news: the first one since a Pod was admitted, or for another cause.
// progress tells that Pods were admitted right before it, so that the pool need not wait for long.
func (r *Refusals) Refused(pool types.NamespacedName, subject string, v Verdict, progress bool) (news bool) {
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.current(pool)
	delay := holdMin
	if known && !progress && before.subject == subject {
		delay = min(2*before.delay, holdMax)
	}
	hold := min(max(delay, v.RetryAfter), holdMax)
	hold -= time.Duration(rand.Float64() * 0.2 * float64(hold))
	r.pools[pool] = refused{Verdict: v, subject: subject, delay: delay, hold: hold, last: r.clock.Now()}
	return !known || before.Reason != v.Reason || before.subject != subject
}

// Admitted notes that the pool got all the Pods that it asked for.
func (r *Refusals) Admitted(pool types.NamespacedName) { r.Forget(pool) }

// Forget drops what is known of a pool.
func (r *Refusals) Forget(pool types.NamespacedName) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pools, pool)
}

// Hold is for how long the pool is to make no Pods of that subject.
func (r *Refusals) Hold(pool types.NamespacedName, subject string) time.Duration {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.current(pool); ok && known.subject == subject {
		return max(0, known.hold-r.clock.Since(known.last))
	}
	return 0
}

// Last is the pool's latest refusal, if no Pod was admitted since and it is not long ago.
func (r *Refusals) Last(pool types.NamespacedName) (Refusal, bool) {
	if r == nil {
		return Refusal{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.current(pool)
	if !ok {
		return Refusal{}, false
	}
	age := r.clock.Since(known.last)
	return Refusal{Reason: known.Reason, Message: known.Message, Age: age, RetryAfter: max(0, known.hold-age)}, true
}

// current is called with the lock held.
func (r *Refusals) current(pool types.NamespacedName) (refused, bool) {
	known, ok := r.pools[pool]
	if ok && r.clock.Since(known.last) > refusalForgotten {
		delete(r.pools, pool)
		return refused{}, false
	}
	return known, ok
}

// Name of the plugin.
func (r *Refusals) Name() string { return "refused-pods" }

// PreUpdatePool admits no growth while Pods of the pool are being refused.
func (r *Refusals) PreUpdatePool(_ context.Context, change *Change) (Verdict, error) {
	last, ok := r.Last(client.ObjectKeyFromObject(change.Pool))
	if !ok {
		return Admit(change.To), nil
	}
	return Refuse(change.From, last.Reason, last.Message, max(last.RetryAfter, holdMin)), nil
}
