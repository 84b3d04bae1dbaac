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
	// A pool whose Pods are refused retries after 1 s, 2 s, and so on up to a minute. A plugin may ask for a longer pause, but not for more
	// than a minute, so that the pool notices a freed quota within a minute.
	holdMin = time.Second
	holdMax = time.Minute
	// refusalForgotten exceeds every hold, so that a pool which keeps retrying counts as refused without a gap. A pool that needs no more Pods
	// does not retry, and may grow after that time to find out.
	refusalForgotten = 90 * time.Second
)

// Refusal describes why a pool's latest Pod was refused.
type Refusal struct {
	Reason  Reason
	Message string
	// Age is the time since the latest refusal, on the monotonic clock.
	Age time.Duration
	// RetryAfter is how long the pool creates no more Pods.
	RetryAfter time.Duration
}

// Refusals remembers which pools were refused a Pod by the cluster or a plugin. The pool's reconciler writes it, and waits accordingly. As
// a plugin it admits no growth of a pool that does not get the Pods it already wants, so that the autoscaler needs no other source. A nil
// Refusals remembers nothing. Memory is bounded by the pools (I10).
type Refusals struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	pools map[types.NamespacedName]refused
}

type refused struct {
	Verdict
	// subject identifies the refused Pods, as far as the pool can change them. With another subject the pool retries at once.
	subject string
	delay   time.Duration // before jitter
	hold    time.Duration
	last    time.Time
}

// NewRefusals returns an empty Refusals.
func NewRefusals(clk clock.PassiveClock) *Refusals {
	return &Refusals{clock: clk, pools: map[types.NamespacedName]refused{}}
}

// Refused records a refusal, and reports whether it is new: the first one since a Pod was admitted, or one with another cause. progress is
// set if Pods were admitted right before it, so that the pool need not wait long.
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

// Admitted records that the pool got all the Pods that it asked for.
func (r *Refusals) Admitted(pool types.NamespacedName) { r.Forget(pool) }

// Forget drops the entry of a pool.
func (r *Refusals) Forget(pool types.NamespacedName) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pools, pool)
}

// Hold returns how long the pool must not create Pods of that subject.
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

// Last returns the pool's latest refusal, if it is recent and no Pod was admitted since.
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

// current returns an entry that has not expired. The caller holds the lock.
func (r *Refusals) current(pool types.NamespacedName) (refused, bool) {
	known, ok := r.pools[pool]
	if ok && r.clock.Since(known.last) > refusalForgotten {
		delete(r.pools, pool)
		return refused{}, false
	}
	return known, ok
}

// Name returns the plugin's name.
func (r *Refusals) Name() string { return "refused-pods" }

// PreUpdatePool admits no growth while Pods of the pool are being refused.
func (r *Refusals) PreUpdatePool(_ context.Context, change *Change) (Verdict, error) {
	last, ok := r.Last(client.ObjectKeyFromObject(change.Pool))
	if !ok {
		return Admit(change.To), nil
	}
	return Refuse(change.From, last.Reason, last.Message, max(last.RetryAfter, holdMin)), nil
}
