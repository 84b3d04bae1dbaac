// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/pkg/scalepolicy"
)

const (
	// softDelay is how long a change without urgency must last before it is written.
	softDelay = 5 * time.Second
	// flushInterval is the time between two writes of the last request for a sandbox.
	flushInterval = 5 * time.Second
)

// report writes a pool's memo into the pool if it changed. If it is too early for a write, report returns how long to wait.
func (r *Reconciler) report(
	ctx context.Context, e *v1alpha1.SandboxEnv, g *group, t *target, d *scalepolicy.MemberDecision,
) (later time.Duration, err error) {
	r.observe(ctx, e, g, t, d)
	if versionOf(t.pool) < t.memo.version {
		return settle, nil // the cache is behind our last write
	}
	pool := t.pool.DeepCopy()
	helper := patch.NewPatchHelper(r.client, pool)
	remembered := t.memo.written(r.steady)
	status := r.dueStatus(t, remembered, &later)
	if status {
		pool.Status.AutoScaling = remembered
	}
	flush := r.dueFlush(t, &later)
	if flush {
		if pool.Annotations == nil {
			pool.Annotations = map[string]string{}
		}
		pool.Annotations[v1alpha1.LastSandboxCreateTimeAnnotationKey] = r.steady.written(t.memo.created).UTC().Format(time.RFC3339)
	}
	if !status && !flush || pool.DeletionTimestamp != nil {
		return later, nil
	}
	if err := helper.Patch(ctx, pool); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return later, nil
		}
		return 0, fmt.Errorf("writing what the autoscaler remembers of pool %s: %w", t.key.Name, err)
	}
	t.memo.version = versionOf(pool)
	if flush {
		t.memo.flushed, t.memo.flushAt = t.memo.created, r.clock.Now()
	}
	return later, nil
}

// dueStatus reports whether the status must be written now.
func (r *Reconciler) dueStatus(t *target, remembered *v1alpha1.PoolAutoScalingStatus, later *time.Duration) bool {
	now, atAll := urgent(remembered, t.pool.Status.AutoScaling)
	switch {
	case !atAll:
		t.memo.softSince = time.Time{}
		return false
	case now:
		t.memo.softSince = time.Time{}
		return true
	case t.memo.softSince.IsZero():
		t.memo.softSince = r.clock.Now()
	}
	if left := softDelay - r.clock.Since(t.memo.softSince); left > 0 {
		*later = sooner(*later, left)
		return false
	}
	t.memo.softSince = time.Time{}
	return true
}

// dueFlush reports whether the annotation must be written now.
func (r *Reconciler) dueFlush(t *target, later *time.Duration) bool {
	if t.memo.created.Sub(t.memo.flushed) < time.Second {
		return false
	}
	if t.memo.flushAt.IsZero() {
		return true
	}
	if left := flushInterval - r.clock.Since(t.memo.flushAt); left > 0 {
		*later = sooner(*later, left)
		return false
	}
	return true
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// clear removes the status from a pool that is not autoscaled.
func (r *Reconciler) clear(ctx context.Context, cached *v1alpha1.SandboxPool) error {
	if cached.Status.AutoScaling == nil || cached.DeletionTimestamp != nil {
		return nil
	}
	pool := cached.DeepCopy()
	helper := patch.NewPatchHelper(r.client, pool)
	pool.Status.AutoScaling = nil
	if err := helper.Patch(ctx, pool); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("clearing the autoscaler's status of pool %s: %w", pool.Name, err)
	}
	return nil
}

// observe reports a decision to metrics, logs and the agent. If a member should grow and is at a ceiling, observe reports that once until
// it changes, and once more when claims begin to wait for the member.
func (r *Reconciler) observe(ctx context.Context, e *v1alpha1.SandboxEnv, g *group, t *target, d *scalepolicy.MemberDecision) {
	if d.Direction == scalepolicy.None {
		r.metrics.setDesired(t.key, d.To)
	}
	if d.Direction != scalepolicy.None || d.Reason != t.memo.decided {
		r.metrics.decisions.WithLabelValues(string(d.Direction), string(d.Reason)).Inc()
		log.FromContext(ctx).V(1).Info("decided", "pool", t.key.Name, "direction", d.Direction, "from", d.From, "to", d.To, "reason", d.Reason,
			"text", d.Text)
	}
	t.memo.decided = d.Reason
	full := fullnessOf(t, d)
	if full > t.memo.reportedFull {
		who := "no claim waits yet, but"
		if full == fullAndWaitedFor {
			who = "claims wait and"
		}
		r.events.Eventf(t.pool, e, corev1.EventTypeWarning, string(d.Reason), "ScaleUp",
			"%s the pool cannot grow beyond %d: %s", who, d.From, d.Text)
	}
	if full == notFull || full > t.memo.reportedFull {
		t.memo.reportedFull = full
	}
	saturated := scalepolicy.SaturatedUntil(t.memo.status, &g.Policy.ScaleUpPolicy, g.Now)
	var left time.Duration
	if !saturated.IsZero() {
		left = saturated.Sub(g.Now)
	}
	if t.memo.wait > 0 {
		left = max(left, r.untilAsked(t))
	}
	r.outlooks.set(t.key, d.CanGrow && left == 0 && !t.stuck, left)
}

// fullness is how severely a ceiling holds back a member that should grow.
type fullness int

const (
	notFull fullness = iota
	fullAhead
	fullAndWaitedFor
)

func fullnessOf(t *target, d *scalepolicy.MemberDecision) fullness {
	switch {
	case d.Direction != scalepolicy.None || !isCeiling(d.Reason):
		return notFull
	case t.waiting > 0:
		return fullAndWaitedFor
	}
	return fullAhead
}

func isCeiling(reason scalepolicy.Reason) bool {
	switch reason {
	case scalepolicy.ReasonMemberCeiling, scalepolicy.ReasonGroupCeiling, scalepolicy.ReasonNoRoom:
		return true
	}
	return false
}

// reportMoved reports that replicas were changed.
func (r *Reconciler) reportMoved(ctx context.Context, e *v1alpha1.SandboxEnv, t *target, from, to int32, d *scalepolicy.MemberDecision) {
	reason, action := "ScaledUp", "ScaleUp"
	if to < from {
		reason, action = "ScaledDown", "ScaleDown"
	}
	r.metrics.setDesired(t.key, to)
	r.events.Eventf(t.pool, e, corev1.EventTypeNormal, reason, action, "replicas from %d to %d: %s: %s", from, to, d.Reason, d.Text)
	log.FromContext(ctx).Info("replicas changed", "pool", t.key.Name, "from", from, "to", to, "reason", d.Reason, "text", d.Text)
}

// reportRefused reports that admission allowed less growth than was decided.
func (r *Reconciler) reportRefused(
	ctx context.Context, e *v1alpha1.SandboxEnv, t *target, g *group, d *scalepolicy.MemberDecision, growth scalepolicy.Growth,
) {
	r.events.Eventf(t.pool, e, corev1.EventTypeWarning, "ScaleUp"+string(growth.Result), "ScaleUp",
		"replicas were to go from %d to %d, and %d are admitted: %s; the next attempt is in %d s",
		d.From, d.To, growth.To, growth.Message, g.Policy.ScaleUpPolicy.SaturationCooldownSeconds)
	log.FromContext(ctx).Info("growth not admitted", "pool", t.key.Name, "env", client.ObjectKeyFromObject(e),
		"wanted", d.To, "admitted", growth.To, "result", growth.Result, "message", growth.Message)
}
