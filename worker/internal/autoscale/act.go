// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/pkg/scalepolicy"
	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/replicas"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// parallel is how many Pods are marked concurrently.
	parallel = 16
	// betweenAttempts is the minimum time between two requests to admission for a pool whose cooldowns are 0.
	betweenAttempts = time.Second
	// longestWait bounds the time after which a refusing plugin may be asked again.
	longestWait = 5 * time.Minute
)

// act carries out the decision about one member. A failed step is retried, because it is not recorded.
func (r *Reconciler) act(ctx context.Context, e *v1alpha1.SandboxEnv, g *group, t *target, d *scalepolicy.MemberDecision) error {
	var err error
	switch d.Direction {
	case scalepolicy.Up:
		err = r.grow(ctx, e, g, t, d)
	case scalepolicy.Down:
		if err = r.setReplicas(ctx, e, t, d.To); err == nil {
			t.memo.status = scalepolicy.RecordDown(t.memo.status, r.steady.now())
			r.reportMoved(ctx, e, t, d.From, d.To, d)
		}
	}
	if errors.Is(err, replicas.ErrMoved) {
		log.FromContext(ctx).V(1).Info("abandoned until the next reconcile", "pool", t.key.Name, "cause", err.Error())
		err = nil
	}
	return errors.Join(err, r.mark(ctx, t, d))
}

func (r *Reconciler) setReplicas(ctx context.Context, e *v1alpha1.SandboxEnv, t *target, to int32) error {
	version, err := replicas.Set(ctx, r.client, e, r.clusterID, t.pool.Name, to)
	if err != nil {
		return err
	}
	if n, err := strconv.ParseUint(version, 10, 64); err == nil {
		r.memory.wrote(client.ObjectKeyFromObject(e), n)
	}
	return nil
}

// grow asks admission for the group's growth, and raises replicas to the admitted number.
func (r *Reconciler) grow(ctx context.Context, e *v1alpha1.SandboxEnv, g *group, t *target, d *scalepolicy.MemberDecision) error {
	if !d.Probe {
		err := r.setReplicas(ctx, e, t, d.To)
		if err == nil {
			r.reportMoved(ctx, e, t, d.From, d.To, d)
		}
		return err
	}
	if r.untilAsked(t) > 0 {
		return nil
	}
	t.memo.attempt, t.memo.wait = r.clock.Now(), 0
	growth, err := r.admit(ctx, e, t, d)
	if err != nil {
		return err
	}
	if growth.To > d.From {
		if err := r.setReplicas(ctx, e, t, growth.To); err != nil {
			return err
		}
		r.reportMoved(ctx, e, t, d.From, growth.To, d)
	}
	t.memo.status = scalepolicy.Record(t.memo.status, growth, r.steady.now())
	r.metrics.probes.WithLabelValues(string(growth.Result)).Inc()
	if growth.Result != v1alpha1.PoolScaleUpAttemptEnough {
		r.reportRefused(ctx, e, t, g, d, growth)
	}
	return nil
}

// untilAsked returns how long admission must not be asked about a member yet, regardless of its cooldowns.
func (r *Reconciler) untilAsked(t *target) time.Duration {
	if t.memo.attempt.IsZero() {
		return 0
	}
	return max(0, max(betweenAttempts, t.memo.wait)-r.clock.Since(t.memo.attempt))
}

// admit determines how much growth is admitted. It first asks for the whole target. If that is refused, it searches for a smaller number
// with probes, and then asks for the result.
func (r *Reconciler) admit(
	ctx context.Context, e *v1alpha1.SandboxEnv, t *target, d *scalepolicy.MemberDecision,
) (scalepolicy.Growth, error) {
	ask := func(ctx context.Context, to int32, probe bool) (scalepolicy.AdmissionResult, error) {
		if r.admission == nil {
			return scalepolicy.AdmissionResult{Admitted: to}, nil
		}
		verdict, err := r.admission.PreUpdatePool(ctx, &admission.Change{
			Env: client.ObjectKeyFromObject(e), Key: fmt.Sprintf("%s/%s", e.UID, t.key.Name), Pool: t.pool.DeepCopy(), From: d.Floor, To: to,
			Probe: probe,
		})
		if !verdict.Whole(to) {
			t.memo.wait = max(t.memo.wait, min(verdict.RetryAfter, longestWait))
		}
		message := verdict.Message
		if verdict.Reason != "" {
			message = fmt.Sprintf("%s: %s", verdict.Reason, verdict.Message)
		}
		return scalepolicy.AdmissionResult{Admitted: verdict.Replicas, Invalid: verdict.Reason == admission.InvalidSpec, Message: message}, err
	}
	growth, err := scalepolicy.Search(ctx, d.Floor, d.To, func(ctx context.Context, to int32) (scalepolicy.AdmissionResult, error) {
		return ask(ctx, to, to != d.To)
	})
	if err != nil || growth.To == d.Floor || growth.To == d.To {
		return growth, err
	}
	answer, err := ask(ctx, growth.To, false)
	switch {
	case err != nil && ctx.Err() != nil:
		return scalepolicy.Growth{}, err
	case err != nil:
		growth.To, growth.Result, growth.Message = d.Floor, v1alpha1.PoolScaleUpAttemptFailed, err.Error()
	default:
		growth.To = min(growth.To, max(answer.Admitted, d.Floor))
	}
	return growth, nil
}

// mark marks and unmarks idle Pods. A Pod that was claimed meanwhile stays as the claim left it.
func (r *Reconciler) mark(ctx context.Context, t *target, d *scalepolicy.MemberDecision) error {
	if len(d.Mark)+len(d.Unmark) == 0 {
		return nil
	}
	var work errgroup.Group
	work.SetLimit(parallel)
	write := func(pods []scalepolicy.IdlePod, verb string, body func(*corev1.Pod) []byte) {
		for _, one := range pods {
			pod := t.pods[one.UID]
			work.Go(func() error {
				updated := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
				err := r.client.Patch(ctx, updated, client.RawPatch(types.JSONPatchType, body(pod)))
				if patch.LostRace(err) {
					return nil
				}
				if err != nil {
					return fmt.Errorf("%s pod %s: %w", verb, pod.Name, err)
				}
				r.metrics.marks.WithLabelValues(verb).Inc()
				return nil
			})
		}
	}
	now := r.times.Now()
	write(d.Mark, verbMark, func(pod *corev1.Pod) []byte { return sandbox.MarkPatch(pod, now) })
	write(d.Unmark, verbUnmark, sandbox.UnmarkPatch)
	log.FromContext(ctx).Info("idle Pods chosen for removal", "pool", t.key.Name, "marked", len(d.Mark), "kept", len(d.Unmark), "reason",
		d.Reason, "text", d.Text)
	return work.Wait()
}
