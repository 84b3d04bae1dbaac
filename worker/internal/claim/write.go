// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/latency"
	"navix.sh/atoll/worker/internal/runtimes"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// maxUnclear is how often a write with an unclear result is repeated on the same Pod.
	maxUnclear = 3
	// maxRetryAfter bounds the pause before each repetition, whatever the server's Retry-After says.
	maxRetryAfter = 2 * time.Second
	// renewsWithin is how long a written claim waits for a lease that has lapsed.
	renewsWithin = 3 * time.Second
)

// take writes the claim on a Pod. It returns false without an error if another writer was faster.
func (s *Service) take(ctx context.Context, o *op, hold *inventory.Hold) (bool, error) {
	slot, err := s.writes.begin(ctx, o)
	if err != nil {
		s.update(func(l locked) { l.Return(hold) })
		return false, err
	}
	pod, grant := s.grant(o, hold)
	patch, _, err := sandbox.ClaimPatch(pod, grant)
	if err != nil {
		s.writes.leave(slot)
		s.update(func(l locked) { l.Return(hold) })
		return false, claimFault(err)
	}
	// A started write is followed to its end, even if the caller leaves.
	wanted := ctx
	ctx = context.WithoutCancel(ctx)
	start, before := s.clock.Now(), s.inventory.NewestSeen()
	ctx, end := inventory.StartWrite(ctx, pod, o.id)
	got, now, err := s.write(ctx, o, pod, patch)
	end(got)
	s.writes.done(slot, got != inventory.Unclear)
	took := s.clock.Since(start)
	s.metrics.writes.WithLabelValues(string(got)).Observe(took.Seconds())
	log := s.opts.Log.WithValues("env", o.claim.Request.GetEnv(), "pool", o.claim.Pool.String(), "pod", pod.Name, "claimKey", o.claim.KeyHash)
	switch got {
	case inventory.Written:
		s.opts.Latency.Took(latency.Queue, start.Sub(o.started))
		s.opts.Latency.Took(latency.Write, took)
		if s.inventory.IsSetBack(before, o.id, now) {
			log.Error(inventory.ErrSetBack, "Not returning a sandbox", "sandbox", o.id)
			s.sandboxes.Abandon(o.id)
			return false, disposition.Doubt("writing the claim: %w", inventory.ErrSetBack)
		}
		s.update(func(l locked) { l.Settle(hold, now) })
		if !s.inventory.AwaitLease(wanted, renewsWithin) {
			log.Info("Not returning a sandbox: the lease was lost while its Pod was written", "sandbox", o.id)
			if o.claim.KeyHash == "" {
				s.sandboxes.Abandon(o.id)
			}
			return false, disposition.Doubt("the worker lost its lease while it wrote the claim")
		}
		return true, nil
	case inventory.Lost:
		s.update(func(l locked) { l.LoseToWriter(hold, pod, now) })
		log.V(1).Info("Lost a Pod to another writer", "error", err)
		return false, nil
	case inventory.NoPod:
		s.update(func(l locked) { l.Drop(hold) })
		return false, nil
	case inventory.Faulty:
		s.update(func(l locked) { l.Fail(hold) })
		return false, disposition.Fault(problem.New(problem.Invalid, "the API server refuses the claim: %w", err))
	case inventory.Denied:
		s.update(func(l locked) { l.Fail(hold) })
		log.Error(err, "Not allowed to write a claim")
		return false, disposition.Refuse(problem.Unavailable, "the API server denied the write: %w", err)
	default:
		log.Error(err, "Outcome of a claim unknown", "sandbox", o.id)
		s.update(func(l locked) {
			l.mayAppear(o)
			l.Fail(hold)
		})
		return false, disposition.Doubt("the API server did not respond: %w", err)
	}
}

// grant returns the Pod and what to write on it. An event may update the Pod at any time, even while it is held.
func (s *Service) grant(o *op, hold *inventory.Hold) (pod *corev1.Pod, g *sandbox.Grant) {
	r := o.claim.Request
	g = &sandbox.Grant{
		Claim: sandbox.Claim{
			ID: o.id, KeyHash: o.claim.KeyHash, Attempt: o.claim.Attempt, Proof: o.claim.Proof, Team: r.GetTeam(),
			User: r.GetUser(),
		},
		Timeouts: sandbox.Timeouts{
			Idle: o.timeouts.Idle, Startup: o.startup, MaxLifetime: o.timeouts.MaxLifetime, FirstActivity: o.timeouts.FirstActivity,
		},
		Labels: r.GetLabels(), Metadata: r.GetMetadata(), Image: o.image, Hooks: o.hooks, Now: s.time.Now(),
		DenyEgress: r.GetDenyEgress(), Preparing: o.claim.Prepares,
	}
	if g.KeyHash != "" {
		g.Key = r.GetClaimKey()
	}
	s.view(func(v *inventory.View, _ *shared) {
		pod, g.Incarnation = v.Held(hold), v.Incarnation()
		if p := v.Pool(o.claim.Pool); p != nil && p.Spec() != nil {
			g.Hold = len(runtimes.Checks(p.Spec())) > 0
		}
	})
	return pod, g
}

// write sends the patch until its result is known. A retry is safe: the patch names the Pod and tests that it is idle, so it succeeds at
// most once. write returns the current Pod if it is known. A claim without a key does not wait for an API server that hangs: it may go to
// another cluster, and a sandbox that it leaves behind is released.
func (s *Service) write(ctx context.Context, o *op, pod *corev1.Pod, patch []byte) (inventory.Result, *corev1.Pod, error) {
	repeated := false
	for try := 0; ; try++ {
		now, err := s.inventory.Client().PatchOnce(ctx, pod, patch)
		got := inventory.ResultOf(err)
		if repeated && got == inventory.Denied {
			// A denial concerns this try alone. A freshly started API server may deny what it carried out a moment ago.
			got = inventory.Unclear
		}
		if got == inventory.Lost || got == inventory.NoPod && repeated {
			live, readErr := s.inventory.Client().Read(ctx, pod)
			got = resultOfRead(o.id, pod, live, readErr)
			switch {
			case got != inventory.Unclear:
				return got, live, err
			case !repeated:
				// The only write failed its test. The Pod's next event shows its state.
				return inventory.Lost, nil, err
			}
			err = readErr
		}
		after, busy := apierrors.SuggestsClientDelay(err)
		hangs := errors.Is(err, context.DeadlineExceeded) && o.claim.KeyHash == ""
		if got != inventory.Unclear && (got != inventory.Denied || !busy) || try == maxUnclear || hangs {
			return got, now, err
		}
		repeated = repeated || got == inventory.Unclear
		wait := max(50*time.Millisecond<<try, time.Duration(after)*time.Second)
		if waitErr := wallclock.Sleep(ctx, s.clock, min(wait, maxRetryAfter)); waitErr != nil {
			return inventory.Unclear, nil, errors.Join(err, waitErr)
		}
	}
}

// mayAppear remembers a sandbox that no caller received and that may still appear. With a key, it is the result of the key's next call if
// it exists by then. Without one it ends, even if its event came before and no other follows.
func (l locked) mayAppear(o *op) {
	if o.claim.KeyHash != "" {
		l.unclear.Put(l.clock.Now(), o.claim.KeyHash, o.id)
		return
	}
	l.Disown(o.id)
	if p := l.Sandbox(o.id); p != nil {
		l.enforce(p)
	}
}

func claimFault(err error) error {
	if errors.Is(err, sandbox.ErrLabelTaken) {
		return disposition.Fault(problem.New(problem.Invalid, "labels: %w", err))
	}
	return fmt.Errorf("building the claim: %w", err)
}
