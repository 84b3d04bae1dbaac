// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// maxReleaseTries bounds how often a release is retried because the Pod has changed.
	maxReleaseTries = 8
	// disposeAgain is the first pause between two tries to end a sandbox that no caller has; it grows to maxDisposeAgain.
	disposeAgain    = 500 * time.Millisecond
	maxDisposeAgain = 10 * time.Second
)

// Abandon ends a sandbox whose caller has left without a response, and retries for as long as that takes.
func (s *Service) Abandon(id string) {
	s.inventory.Update(func(st *inventory.State) { s.Dispose(st, id, Abandoned()) })
}

// Abandoned returns the end of a sandbox that no caller received.
func Abandoned() sandbox.End { return Canceled("Abandoned", "the sandbox was returned to no caller") }

// Canceled returns an end with the stop reason Canceled.
func Canceled(reason, message string) sandbox.End {
	return sandbox.End{StopReason: v1alpha1.SandboxStopReasonCanceled, Reason: reason, Message: message}
}

// Dispose ends a sandbox that no caller received. One goroutine per sandbox does so, however often it is requested, so Pods bound the
// goroutines (I10). If the sandbox does not exist and Dispose was called again meanwhile, the goroutine checks once more, because the
// sandbox may have appeared.
func (s *Service) Dispose(st *inventory.State, id string, end sandbox.End) {
	l := s.in(st)
	if !l.Lasts() {
		return
	}
	if _, underWay := l.disposing[id]; underWay {
		l.disposing[id] = true
		return
	}
	l.disposing[id] = false
	l.Go(func(ctx context.Context) {
		for again := true; again; {
			s.dispose(ctx, id, end)
			s.update(func(l locked) { again = l.askedAgain(ctx, id) })
		}
	})
}

// askedAgain reports whether a disposal was requested again while it was under way. If not, the disposal is over.
func (l locked) askedAgain(ctx context.Context, id string) bool {
	if l.disposing[id] && ctx.Err() == nil {
		l.disposing[id] = false
		return true
	}
	delete(l.disposing, id)
	return false
}

// dispose ends a sandbox. It retries for as long as the API server is away, because nothing else would end the sandbox.
func (s *Service) dispose(ctx context.Context, id string, end sandbox.End) {
	for wait := disposeAgain; ; wait = min(2*wait, maxDisposeAgain) {
		if s.mayBeAcknowledged(id) {
			s.update(func(l locked) { l.ReportAgain() })
			return
		}
		_, err := s.end(ctx, id, end)
		if err == nil || disposition.Of(err) == federationv1.Disposition_DONE {
			return
		}
		s.opts.Log.Error(err, "Could not end a sandbox that was returned to no caller", "sandbox", id, "reason", end.Reason)
		if errors.Is(err, inventory.ErrSetBack) || wallclock.Sleep(ctx, s.clock, wait) != nil {
			return
		}
	}
}

// mayBeAcknowledged reports whether another leader may have returned a sandbox for its key, after this process lost the lease.
func (s *Service) mayBeAcknowledged(id string) (may bool) {
	s.inventory.View(func(v *inventory.View) {
		p := v.Sandbox(id)
		may = p != nil && p.KeyHash() != "" && !s.inventory.LeaseHeld()
	})
	return may
}

// Release ends a sandbox for its caller. It returns the record if the sandbox has already ended.
func (s *Service) Release(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	return s.end(ctx, id, sandbox.End{StopReason: v1alpha1.SandboxStopReasonReleased})
}

// end writes the end of a sandbox until the Pod shows one, from any writer.
func (s *Service) end(ctx context.Context, id string, end sandbox.End) (*sandboxv1.Sandbox, error) {
	defer s.closeReach(id)()
	record, err := s.write(ctx, id, "releasing", maxReleaseTries, func() (edit, error) { return s.prepareEnd(id, end) })
	if err == nil {
		s.recordReleased(ctx, id)
	}
	return record, err
}

// edit is a write on the Pod of a sandbox, or the record of a sandbox that needs no write.
type edit struct {
	pod     *corev1.Pod
	patch   []byte
	release *sandbox.Termination // if set, the Pod is deleted instead
	record  *sandboxv1.Sandbox
}

func (e *edit) write(ctx context.Context, s *Service, id string) (inventory.Result, error) {
	if e.release == nil {
		return s.inventory.Write(ctx, id, e.pod, e.patch)
	}
	return s.inventory.Delete(ctx, id, e.pod, *e.release)
}

// write sends the prepared edit, prepares it again if the Pod has changed, and returns the sandbox after the write.
func (s *Service) write(ctx context.Context, id, doing string, tries int, prepare func() (edit, error)) (*sandboxv1.Sandbox, error) {
	var last error
	for try := range tries {
		e, err := prepare()
		if err != nil || e.record != nil {
			return e.record, err
		}
		if e.pod == nil {
			return s.findEnded(ctx, id)
		}
		got, err := e.write(ctx, s, id)
		switch {
		case errors.Is(err, inventory.ErrSetBack):
			return nil, disposition.Doubt("%s sandbox %s: %w", doing, id, err)
		case got == inventory.Written:
			return s.Find(ctx, id)
		case got == inventory.Faulty:
			return nil, disposition.Fault(problem.New(problem.Internal, "%s sandbox %s: %w", doing, id, err))
		}
		last = err // a freshly started API server refuses what it later allows
		if err := wallclock.Sleep(ctx, s.clock, 20*time.Millisecond<<try); err != nil {
			break
		}
	}
	return nil, disposition.Doubt("%s sandbox %s: %w", doing, id, last)
}

// deletes reports whether a release deletes the Pod. It does so if the Pod is not reset and this process will record the sandbox before the
// Pod goes: the process is not about to end, and no other controller manages the pool.
func (l locked) deletes(p *inventory.Pod) bool {
	pod, pool := p.Object(), p.Pool().Object()
	if pod.DeletionTimestamp != nil || !sandbox.IsProtected(pod) || sandbox.Recyclable(pod, returnsTo(p)).Reset {
		return false
	}
	return !l.stopped && pool != nil && (l.opts.Paused == nil || !l.opts.Paused(pool))
}

// prepareEnd returns the edit that ends a sandbox, or an empty edit for a sandbox on no Pod.
func (s *Service) prepareEnd(id string, end sandbox.End) (e edit, err error) {
	s.update(func(l locked) {
		p := l.Sandbox(id)
		switch {
		case !l.Lasts():
			err = disposition.NotServing()
		case p == nil:
		case !p.Live():
			e.record = s.Show(p)
		case end.StopReason == v1alpha1.SandboxStopReasonFailed:
			// The cause of the failure may still exist, so the Pod is replaced.
			e.pod, e.patch = p.Object(), sandbox.FailPatch(p.Object(), end, s.time.Now())
		case l.deletes(p):
			e.pod, e.release = p.Object(), new(sandbox.ReleasedAt(p.Object(), end, s.time.Now()))
		default:
			e.pod, e.patch = p.Object(), sandbox.ReleasePatch(p.Object(), returnsTo(p), end, s.time.Now())
		}
	})
	return e, err
}
