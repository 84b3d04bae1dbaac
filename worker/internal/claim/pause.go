// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/await"
	"navix.sh/atoll/worker/internal/pause"
	"navix.sh/atoll/worker/internal/sandbox"
)

// turnWait is how long a pause or a resume is waited for, which goes on after that. A hub waits for 10 s.
const turnWait = 8 * time.Second

// maxTurnSteps bounds the writes of a turn, and the tries to make them.
const maxTurnSteps = 8

// turn is a sandbox' way to being paused, or running again. There is one at a time, shared by all who ask for the same.
type turn struct {
	target  pause.Target
	started time.Time
	task    *await.Task
	tries   int           // how many before it were in vain
	done    chan struct{} // closed when err is set
	err     error
}

// Pause frees a running sandbox' CPU. It returns when the node has done so, or says that it does not.
func (s *Service) Pause(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	return s.turnTo(ctx, id, pause.Paused)
}

// Resume gives a paused sandbox its CPU back. It returns when the node has done so, or says that it does not yet.
func (s *Service) Resume(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	return s.turnTo(ctx, id, pause.Running)
}

func (s *Service) turnTo(ctx context.Context, id string, target pause.Target) (*sandboxv1.Sandbox, error) {
	task, err := s.newTask(id, target)
	if err != nil {
		return nil, busy(err)
	}
	defer task.Release()
	t, record, err := s.enterTurn(ctx, id, target)
	if err != nil || record != nil {
		return record, err
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		return nil, doubtful(problem.New(problem.Deadline, "sandbox %s is not %s yet; it goes on", id, target))
	}
	if t.err != nil {
		return nil, t.err
	}
	return s.Get(ctx, id)
}

// newTask has the hook before anything is changed: whoever wants the opposite is refused from here on.
func (s *Service) newTask(id string, target pause.Target) (*await.Task, error) {
	if target == pause.Paused {
		return s.waits.NewPause(id)
	}
	return s.waits.NewResume(id)
}

// busy is worth a retry, unlike a request that is wrong.
func busy(err error) error {
	return fault(problem.New(problem.Unavailable, "%w", err).WithRetryAfter(retrySoon))
}

// enterTurn joins the turn that is under way, or begins one; it answers the record of a sandbox that is over.
func (s *Service) enterTurn(ctx context.Context, id string, target pause.Target) (*turn, *sandboxv1.Sandbox, error) {
	pod, record, err := s.live(ctx, id)
	if err != nil || record != nil {
		return nil, record, err
	}
	if sandbox.PhaseOf(pod) != sandbox.Running {
		return nil, nil, busy(fmt.Errorf("sandbox %s is still starting", id))
	}
	s.mu.Lock()
	defer s.unlock()
	t := s.beginTurn(id, target, 0)
	if t == nil {
		return nil, nil, notServing()
	}
	return t, nil, nil
}

// beginTurn answers nil if it cannot be had: the sandbox has another action, or nothing is begun any more. The lock is held.
func (s *Service) beginTurn(id string, target pause.Target, tries int) *turn {
	if t := s.turns[id]; t != nil && t.target == target {
		return t
	}
	task, err := s.newTask(id, target)
	if err != nil || s.leading == nil {
		task.Release()
		return nil
	}
	t := &turn{target: target, started: s.opts.Clock.Now(), task: task, tries: tries, done: make(chan struct{})}
	s.turns[id] = t
	// It ends with leading: the next leader goes on, and must not have to wait for it.
	ctx := s.leading
	s.begin(func() { s.carryTurn(ctx, id, t) })
	return t
}

// carryTurn brings a turn to its end, and has what is left of it done later.
func (s *Service) carryTurn(ctx context.Context, id string, t *turn) {
	began := false
	err := t.task.Wait(ctx, await.Question{
		Within: turnWait,
		Done: func() (bool, error) {
			settled, err := s.drive(ctx, id, t.target, !began)
			began = true
			return settled, err
		},
		Live: func(ctx context.Context) error { return s.refresh(ctx, id) },
	})
	late := errors.Is(err, await.ErrTimeout)
	switch {
	case late:
		err = nil // what there is of it is the answer
	case err != nil && ctx.Err() != nil:
		err = doubt("sandbox %s is not %s yet, and the worker stops leading; the next leader goes on", id, t.target)
	}
	s.metrics.turned(t.target, s.opts.Clock.Since(t.started), late, err)
	s.mu.Lock()
	defer s.unlock()
	t.err = err
	if s.turns[id] == t { // else it let go of the sandbox a moment ago, and the next one has begun
		delete(s.turns, id)
	}
	close(t.done)
	if err == nil {
		s.followTurn(id, 0)
	} else if e := s.byID[id]; s.leading != nil && e != nil && pause.Marked(e.pod) && !s.nudged[id] {
		s.nudged[id] = true
		ctx := s.leading
		s.begin(func() { s.nudge(ctx, id, t.tries+1) })
	}
}

// nudge looks again, after a while, at a sandbox of which a write has failed.
func (s *Service) nudge(ctx context.Context, id string, tries int) {
	err := wallclock.Sleep(ctx, s.opts.Clock, min(time.Second<<min(tries, 5), 30*time.Second))
	s.mu.Lock()
	defer s.unlock()
	delete(s.nudged, id)
	if err == nil {
		s.followTurn(id, tries)
	}
}

// followTurn goes on with what somebody has begun, be it an earlier leader: whatever the annotation asks for, and the Pod
// does not show. The lock is held.
func (s *Service) followTurn(id string, tries int) {
	e := s.byID[id]
	if s.leading == nil || e == nil || s.turns[id] != nil || sandbox.PhaseOf(e.pod) != sandbox.Running || e.pod.DeletionTimestamp != nil {
		return
	}
	intent := pause.Read(e.pod)
	if intent == nil || pause.Decide(e.pod, intent.Target, s.opts.Time.Now()).Step == pause.Rest {
		return
	}
	s.beginTurn(id, intent.Target, tries)
}

// refresh takes in what a sandbox' Pod is now.
func (s *Service) refresh(ctx context.Context, id string) error {
	s.mu.Lock()
	var pod *corev1.Pod
	if e := s.byID[id]; e != nil {
		pod = e.pod
	}
	s.unlock()
	if pod == nil {
		return nil
	}
	return s.reread(ctx, pod)
}

// drive takes all steps that can be taken now, and reports whether there is nothing to wait for. Only first may it write what
// is wanted: later that is for whoever wants something else to change.
func (s *Service) drive(ctx context.Context, id string, target pause.Target, first bool) (bool, error) {
	settled, refused, err := s.steps(ctx, id, target, first)
	if refused == nil {
		return settled, err
	}
	s.takeBack(ctx, id, target, refused)
	if target == pause.Running {
		return true, fault(problem.New(problem.NoCapacity, "sandbox %s stays paused: %w", id, refused).WithRetryAfter(retrySoon))
	}
	return true, fault(problem.New(problem.Unimplemented, "sandbox %s cannot be paused: %w", id, refused))
}

// takeBack undoes what was written for a turn that was refused. What cannot be undone now is so later: until then the same
// refusal comes of it again.
func (s *Service) takeBack(ctx context.Context, id string, target pause.Target, why error) {
	pod, record, err := s.live(ctx, id)
	if err != nil || record != nil || !pause.Marked(pod) {
		return
	}
	back := pause.Running
	if target == pause.Running {
		back = pause.Paused
	}
	if _, refused, err := s.steps(ctx, id, back, true); refused != nil || err != nil {
		s.opts.Log.Error(errors.Join(refused, err), "Could not take back what was refused", "sandbox", id, "wanted", target, "why", why.Error())
	}
}

// steps is drive without the answer to a refusal.
func (s *Service) steps(ctx context.Context, id string, target pause.Target, first bool) (settled bool, refused, err error) {
	for try := range maxTurnSteps {
		pod, record, err := s.live(ctx, id)
		if err != nil || record != nil {
			return true, nil, err
		}
		intent := pause.Read(pod)
		if !first && (intent == nil || intent.Target != target) {
			return true, nil, nil
		}
		if intent == nil && target == pause.Paused {
			pod, err = s.whole(ctx, id, pod)
		}
		got, d := unclear, pause.Decision{}
		if pod != nil && err == nil {
			d = pause.Decide(pod, target, s.opts.Time.Now())
			switch d.Step {
			case pause.Rest:
				return arrived(pod, target), nil, nil
			case pause.Refuse:
				return true, fmt.Errorf("%s: %s", d.Reason, d.Message), nil
			}
			got, err = s.step(ctx, id, pod, d)
		}
		switch {
		case pod == nil: // it has changed, and the index knows
		case errors.Is(err, ErrSetBack):
			return true, nil, doubt("resizing sandbox %s: %w", id, err)
		case got == written:
			first = first && d.Step != pause.Write
			continue
		case d.Step == pause.Resize && refusedForGood(got, err):
			return true, fmt.Errorf("the API server refuses to resize its Pod: %w", err), nil
		case d.Step == pause.Resize && got == gone && s.same(id, pod):
			return true, errors.New("the API server does not resize Pods, which it can since Kubernetes 1.33"), nil
		}
		last := err
		if err := wallclock.Sleep(ctx, s.opts.Clock, min(20*time.Millisecond<<try, time.Second)); err != nil || try == maxTurnSteps-1 {
			return true, nil, doubt("resizing sandbox %s: %w", id, errors.Join(err, last))
		}
	}
	return true, nil, doubt("resizing sandbox %s: its Pod changes all the time", id)
}

// whole reads a Pod live: what a cache keeps of one is not enough to begin a pause. It is nil if the Pod is no more what it was.
func (s *Service) whole(ctx context.Context, id string, seen *corev1.Pod) (*corev1.Pod, error) {
	live, err := s.opts.Pods.read(ctx, seen)
	switch {
	case apierrors.IsNotFound(err):
		return nil, s.reread(ctx, seen)
	case err != nil:
		return nil, err
	case live.UID != seen.UID, sandbox.Read(live).ID != id, sandbox.PhaseOf(live) != sandbox.Running:
		return nil, s.reread(ctx, seen)
	}
	return live, nil
}

// step carries out one step.
func (s *Service) step(ctx context.Context, id string, pod *corev1.Pod, d pause.Decision) (outcome, error) {
	if d.Step == pause.Resize {
		return s.attempt(ctx, id, pod, sandbox.ResizePatch(pod, d.Changes), "resize")
	}
	patch, err := sandbox.PausePatch(pod, d.Intent, s.opts.Time.Now()) // without an intent when it is cleared
	if err != nil {
		return faulty, err
	}
	return s.attempt(ctx, id, pod, patch)
}

// refusedForGood tells what another try would not change from what it might.
func refusedForGood(got outcome, err error) bool {
	return got == faulty || got == denied && !apierrors.IsTooManyRequests(err) && !apierrors.IsUnauthorized(err)
}

// same reports whether a sandbox is still on the Pod that it was seen on.
func (s *Service) same(id string, pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.unlock()
	e := s.byID[id]
	return e != nil && e.pod.UID == pod.UID && sandbox.PhaseOf(e.pod) == sandbox.Running
}

// arrived reports whether there is nothing more to wait for: it is what is wanted, or the node says that it will take long.
func arrived(pod *corev1.Pod, target pause.Target) bool {
	o := pause.Observe(pod)
	switch {
	case target == pause.Paused:
		return o.State == pause.IsPaused
	case o.State == pause.Untouched:
		return true
	}
	return o.Reason == pause.Deferred || o.Reason == pause.Infeasible
}
