// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/sandbox"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// maxReleaseTries bounds how often a release starts again because the Pod has changed.
	maxReleaseTries = 8
	// disposeAgain is between two releases of a sandbox that nobody was told of, maxDisposeAgain when they keep failing.
	disposeAgain    = 500 * time.Millisecond
	maxDisposeAgain = 10 * time.Second
)

// over answers the record of a sandbox that is on no Pod.
func (s *Service) over(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	record, err := s.recorded(ctx, id)
	if err == nil && record == nil {
		err = s.noSandbox(id)
	}
	return record, err
}

func (s *Service) noSandbox(id string) error {
	if !strings.HasSuffix(id, "-"+s.opts.ClusterID) {
		return notFound("sandbox %q is not of cluster %s", id, s.opts.ClusterID)
	}
	return notFound("there is no sandbox %q, and no record of one", id)
}

// showLocked is nil for a sandbox that is on no Pod. The lock is held.
func (s *Service) showLocked(id string) *sandboxv1.Sandbox {
	if e := s.byID[id]; e != nil {
		return s.show(e)
	}
	return nil
}

func (s *Service) show(e *entry) *sandboxv1.Sandbox {
	return sandbox.Record(e.pod, runtimesOf(e.pool), s.opts.ClusterID)
}

// showPending is what there is to say of a claim that has no Pod. Its id is the one that its sandbox will have.
func (s *Service) showPending(o *op) *sandboxv1.Sandbox {
	r := o.claim.Request
	return &sandboxv1.Sandbox{
		Id: o.id, ClusterId: s.opts.ClusterID, Namespace: o.claim.Pool.Namespace, Env: r.GetEnv(), Pool: o.claim.Pool.Name,
		Phase: sandboxv1.Phase_PENDING, Image: o.image, Team: r.GetTeam(), User: r.GetUser(),
		Labels: r.GetLabels(), Metadata: r.GetMetadata(), ClaimKey: r.GetClaimKey(),
	}
}

// Release ends a sandbox for its caller. One that has ended answers its record.
func (s *Service) Release(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	return s.end(ctx, id, sandbox.End{StopReason: v1alpha1.SandboxStopReasonReleased})
}

// end writes the release until the Pod shows it, whoever wrote it.
func (s *Service) end(ctx context.Context, id string, end sandbox.End) (*sandboxv1.Sandbox, error) {
	defer s.shutting(id, true)()
	var last error
	for try := range maxReleaseTries {
		pod, patch, record, err := s.prepareEnd(id, end)
		if err != nil || record != nil {
			return record, err
		}
		if pod == nil {
			return s.over(ctx, id)
		}
		got, err := s.attempt(ctx, id, pod, patch)
		switch {
		case errors.Is(err, ErrSetBack):
			return nil, doubt("releasing sandbox %s: %w", id, err)
		case got == written:
			continue
		case got == faulty:
			return nil, fault(problem.New(problem.Internal, "releasing sandbox %s: %w", id, err))
		}
		last = err // an API server that has just started refuses what it will allow
		if err := wallclock.Sleep(ctx, s.opts.Clock, 20*time.Millisecond<<try); err != nil {
			break
		}
	}
	return nil, doubt("releasing sandbox %s: %w", id, last)
}

// attempt writes a patch on a sandbox's Pod once, and takes in what the Pod is then.
func (s *Service) attempt(ctx context.Context, id string, pod *corev1.Pod, patch []byte, subresource ...string) (outcome, error) {
	before := s.NewestSeen()
	writing, span := telemetry.Start(ctx, podWrite)
	answer, err := s.opts.Pods.patch(writing, pod, patch, subresource...)
	got := judge(err)
	endWrite(span, pod, id, got)
	switch got {
	case written:
		if versionOf(answer) <= before {
			same, err := s.changedNothing(ctx, answer)
			switch {
			case err != nil:
				return unclear, err
			case same:
				s.learn(answer)
				return got, nil
			}
		}
		if s.isSetBack(before, id, answer) {
			return got, ErrSetBack
		}
		s.learn(answer)
	case lost, gone:
		if err := s.reread(ctx, pod); err != nil {
			return got, err
		}
	}
	return got, err
}

// prepareEnd answers a sandbox that is stopping, or what to write to make it so; nothing for one that is on no Pod.
func (s *Service) prepareEnd(id string, end sandbox.End) (*corev1.Pod, []byte, *sandboxv1.Sandbox, error) {
	s.mu.Lock()
	defer s.unlock()
	if s.lasting == nil {
		return nil, nil, nil, notServing()
	}
	e := s.byID[id]
	if e == nil || !sandbox.PhaseOf(e.pod).Live() {
		return nil, nil, s.showLocked(id), nil
	}
	if end.StopReason == v1alpha1.SandboxStopReasonFailed {
		// Whatever made it fail may still be there: the Pod is replaced.
		return e.pod, sandbox.FailPatch(e.pod, end, s.opts.Time.Now()), nil, nil
	}
	patch, _, err := sandbox.ReleasePatch(e.pod, e.returnsTo(), end, s.opts.Time.Now())
	if err != nil {
		return nil, nil, nil, fmt.Errorf("building the release of %s: %w", id, err)
	}
	return e.pod, patch, nil, nil
}

func (s *Service) learn(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.unlock()
	s.see(pod, true)
}

// reread takes in what a Pod is now.
func (s *Service) reread(ctx context.Context, pod *corev1.Pod) error {
	live, err := s.opts.Pods.read(ctx, pod)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	s.mu.Lock()
	defer s.unlock()
	if err != nil || live.UID != pod.UID {
		s.forget(pod)
		return nil
	}
	s.see(live, true)
	return nil
}

// dispose ends a sandbox that nobody was answered with, however long the API server is away: nobody else will.
func (s *Service) dispose(ctx context.Context, id string, end sandbox.End) {
	for wait := disposeAgain; ; wait = min(2*wait, maxDisposeAgain) {
		if s.mayBeAnswered(id) {
			return
		}
		_, err := s.end(ctx, id, end)
		if err == nil || Disposition(err) == federationv1.Disposition_DONE {
			return
		}
		s.opts.Log.Error(err, "Could not end a sandbox that nobody was told of", "sandbox", id, "reason", end.Reason)
		if errors.Is(err, ErrSetBack) || wallclock.Sleep(ctx, s.opts.Clock, wait) != nil {
			return
		}
	}
}

// mayBeAnswered reports whether another leader may have answered a sandbox: by its key, since the lease was lost here.
func (s *Service) mayBeAnswered(id string) bool {
	s.mu.Lock()
	defer s.unlock()
	e := s.byID[id]
	return e != nil && e.hash != "" && !s.opts.Lease.Held()
}

// spawnDispose has a sandbox disposed of, by one goroutine whatever asks for it again meanwhile: they are no more than there
// are Pods (I10). One that ends because there is no such sandbox looks once more, for it may have appeared. The lock is held.
func (s *Service) spawnDispose(id string, end sandbox.End) {
	if s.lasting == nil {
		return
	}
	if _, underWay := s.disposing[id]; underWay {
		s.disposing[id] = true
		return
	}
	s.disposing[id] = false
	s.spawn(func(ctx context.Context) {
		for again := true; again; again = s.disposeAgain(id, ctx.Err() != nil) {
			s.dispose(ctx, id, end)
		}
	})
}

// disposeAgain reports whether a disposal was asked for once more while it was under way; else, or at the last, it is over.
func (s *Service) disposeAgain(id string, last bool) bool {
	s.mu.Lock()
	defer s.unlock()
	if s.disposing[id] && !last {
		s.disposing[id] = false
		return true
	}
	delete(s.disposing, id)
	return false
}

func (s *Service) spawnAbandon(id string) {
	s.spawnDispose(id, canceledEnd("Abandoned", "nobody was told of the sandbox"))
}

// Abandon ends a sandbox whose caller has left without an answer, however long that takes.
func (s *Service) Abandon(id string) {
	s.mu.Lock()
	defer s.unlock()
	s.spawnAbandon(id)
}

func canceledEnd(reason, message string) sandbox.End {
	return sandbox.End{StopReason: v1alpha1.SandboxStopReasonCanceled, Reason: reason, Message: message}
}
