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
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/latency"
	"navix.sh/atoll/worker/internal/runtimes"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// maxUnclear is how often a write whose outcome is unclear is repeated on the same Pod.
	maxUnclear = 3
	// maxRetryAfter bounds the pause before that, whatever a server asks for.
	maxRetryAfter = 2 * time.Second
)

// take writes the claim on a Pod. False without an error means that another writer was faster.
func (s *Service) take(ctx context.Context, o *op, e *entry) (bool, error) {
	pod, grant := s.grant(o, e)
	patch, _, err := sandbox.ClaimPatch(pod, grant)
	if err != nil {
		s.release(e, nil)
		return false, claimFault(err)
	}
	// Once begun, a write is followed to its end, whoever has left.
	ctx = context.WithoutCancel(ctx)
	start, before := s.opts.Clock.Now(), s.NewestSeen()
	ctx, span := telemetry.Start(ctx, podWrite)
	got, answer, err := s.write(ctx, o, pod, patch)
	endWrite(span, pod, o.id, got)
	s.metrics.wrote(s.opts.Clock.Since(start), got)
	if got == written {
		s.opts.Latency.Took(latency.Queue, start.Sub(o.started))
		s.opts.Latency.Took(latency.Write, s.opts.Clock.Since(start))
	}
	log := s.opts.Log.WithValues("env", o.claim.Request.GetEnv(), "pool", o.claim.Pool.String(), "pod", pod.Name, "claimKey", o.claim.KeyHash)
	switch got {
	case written:
		if s.isSetBack(before, o.id, answer) {
			log.Error(ErrSetBack, "Not answering", "sandbox", o.id)
			return false, doubt("writing the claim: %w", ErrSetBack)
		}
		s.release(e, answer)
		if !s.opts.Lease.Held() {
			log.Info("Not answering: the lease was lost while the Pod was written", "sandbox", o.id)
			if o.claim.KeyHash == "" {
				s.Abandon(o.id)
			}
			return false, doubt("the worker lost its lease while it wrote the claim")
		}
		return true, nil
	case lost:
		s.spoil(e, pod, answer)
		log.V(1).Info("Lost a Pod to another writer", "error", err)
		return false, nil
	case gone:
		s.lose(e)
		return false, nil
	case faulty:
		s.release(e, nil)
		return false, fault(problem.New(problem.Invalid, "the API server refuses the claim: %w", err))
	case denied:
		s.release(e, nil)
		log.Error(err, "Not allowed to write a claim")
		return false, refuse(problem.Unavailable, "the API server did not let the worker write: %w", err)
	default:
		log.Error(err, "Outcome of a claim unknown", "sandbox", o.id)
		s.stray(o)
		s.release(e, nil)
		return false, doubt("the API server did not answer: %w", err)
	}
}

// grant is what to write on which Pod. An event may show the Pod anew at any time, also while it is taken.
func (s *Service) grant(o *op, e *entry) (*corev1.Pod, *sandbox.Grant) {
	r := o.claim.Request
	s.mu.Lock()
	defer s.unlock()
	g := &sandbox.Grant{
		ID: o.id, KeyHash: o.claim.KeyHash, Attempt: o.claim.Attempt, Incarnation: s.incarnation,
		Team: r.GetTeam(), User: r.GetUser(), Labels: r.GetLabels(), Metadata: r.GetMetadata(),
		Image: o.image, Hooks: o.hooks, Now: s.opts.Time.Now(), StartupTimeout: o.startup,
		IdleTimeout: o.timeouts.Idle, MaxLifetime: o.timeouts.Lifetime, FirstActivityTimeout: o.timeouts.FirstActivity,
	}
	if spec := o.pool.spec; spec != nil {
		g.Hold = len(runtimes.Checks(spec)) > 0
	}
	if g.KeyHash != "" {
		g.Key = r.GetClaimKey()
	}
	return e.pod, g
}

// write sends the patch until its outcome is known. Repeating it is safe: it names the Pod and tests that it is idle, so
// it happens once at most. Its answer is the Pod as it is now, where that is known. A claim without a key is not kept
// waiting for an API server that hangs: it may go to another cluster, and what it leaves behind is released.
func (s *Service) write(ctx context.Context, o *op, pod *corev1.Pod, patch []byte) (outcome, *corev1.Pod, error) {
	repeated := false
	for try := 0; ; try++ {
		answer, err := s.opts.Pods.claim(ctx, pod, patch)
		got := judge(err)
		if repeated {
			got = atRepeat(got)
		}
		if got == lost || got == gone && repeated {
			var live *corev1.Pod
			if got, live, err = s.classify(ctx, o.id, pod, repeated, err); got != unclear {
				return got, live, err
			}
		}
		after, busy := apierrors.SuggestsClientDelay(err)
		hangs := errors.Is(err, context.DeadlineExceeded) && o.claim.KeyHash == ""
		if got != unclear && (got != denied || !busy) || try == maxUnclear || hangs {
			return got, answer, err
		}
		repeated = repeated || got == unclear
		wait := max(50*time.Millisecond<<try, time.Duration(after)*time.Second)
		if waitErr := wallclock.Sleep(ctx, s.opts.Clock, min(wait, maxRetryAfter)); waitErr != nil {
			return unclear, nil, errors.Join(err, waitErr)
		}
	}
}

// classify reads live what a refused write met: the claim itself, if an earlier try of it went through unheard.
func (s *Service) classify(ctx context.Context, id string, pod *corev1.Pod, repeated bool, cause error) (outcome, *corev1.Pod, error) {
	live, err := s.opts.Pods.read(ctx, pod)
	switch {
	case apierrors.IsNotFound(err) || err == nil && live.UID != pod.UID:
		return gone, nil, cause
	case err != nil && repeated:
		return unclear, nil, err
	case err != nil:
		// The one write there was has failed its test. What the Pod is now, its next event will tell.
		return lost, nil, cause
	case sandbox.Read(live).ID == id:
		return written, live, nil
	default:
		return lost, live, cause
	}
}

// release lets go of a Pod that was taken; live is what it has become, if that is known.
func (s *Service) release(e *entry, live *corev1.Pod) {
	s.mu.Lock()
	defer s.unlock()
	e.taken = false
	if live != nil {
		s.see(live, true)
	}
	s.putBack(e)
}

// spoil lets go of a Pod that was lost. If it looks claimable still, it is not offered again until it has changed: a claim
// would fail on it over and over.
func (s *Service) spoil(e *entry, seen, live *corev1.Pod) {
	s.mu.Lock()
	defer s.unlock()
	e.spoilt = versionOf(seen)
	if live != nil {
		e.spoilt = versionOf(live)
	}
	e.taken = false
	if live != nil {
		s.see(live, true)
	}
	s.putBack(e)
}

// lose drops a Pod that is gone.
func (s *Service) lose(e *entry) {
	s.mu.Lock()
	defer s.unlock()
	e.taken = false
	if s.pods[e.pod.UID] == e {
		s.forget(e.pod)
	}
}

// stray remembers a sandbox that may yet appear and that nobody was told of. One with a key is the answer to whoever asks
// next, if it is there by then.
func (s *Service) stray(o *op) {
	s.mu.Lock()
	defer s.unlock()
	now := s.opts.Clock.Now()
	if o.claim.KeyHash == "" {
		s.strays.put(now, o.id, struct{}{})
	} else {
		s.unclear.put(now, o.claim.KeyHash, o.id)
	}
}

func claimFault(err error) error {
	if errors.Is(err, sandbox.ErrLabelTaken) {
		return fault(problem.New(problem.Invalid, "labels: %w", err))
	}
	return fmt.Errorf("building the claim: %w", err)
}
