// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/pause"
	"navix.sh/atoll/worker/internal/sandbox"
)

// transitionWait is how long a call waits for a pause or a resume, which continues after that. A hub waits for 10 s.
const transitionWait = 8 * time.Second

// transition pauses or resumes a sandbox. Each sandbox has one at a time, shared by all callers with the same target.
type transition struct {
	target  pause.Target
	started time.Time
	watch   *watch
	tries   int           // earlier ones that failed
	done    chan struct{} // closed when err is set
	err     error
}

// Pause frees a running sandbox's CPU. It returns when the node has done so, or when the node reports that it will not.
func (s *Service) Pause(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	return s.changeTo(ctx, id, pause.Paused)
}

// Resume gives a paused sandbox its CPU back. It returns when the node has done so, or when the node reports that it cannot yet.
func (s *Service) Resume(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	return s.changeTo(ctx, id, pause.Running)
}

func (s *Service) changeTo(ctx context.Context, id string, target pause.Target) (*sandboxv1.Sandbox, error) {
	pod, record, err := s.live(ctx, id)
	if err != nil || record != nil {
		return record, err
	}
	if sandbox.PhaseOf(pod) != sandbox.Running {
		return nil, busy(fmt.Errorf("sandbox %s is still starting", id))
	}
	var t *transition
	s.update(func(l locked) { t, err = l.transitionTo(id, target, 0) })
	if err != nil {
		return nil, err
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		return nil, disposition.Doubtful(problem.New(problem.Deadline, "sandbox %s is not %s yet; it continues", id, target))
	}
	if t.err != nil {
		return nil, t.err
	}
	return s.Get(ctx, id)
}

// busy returns UNAVAILABLE, because a retry helps, unlike after an invalid request.
func busy(err error) error {
	return disposition.Fault(problem.New(problem.Unavailable, "%w", err).WithRetryAfter(problem.RetrySoon))
}

// followTransition continues a transition that the Pod's annotation requests and its resources do not show yet, including an earlier
// leader's.
func (l locked) followTransition(id string, tries int) {
	p := l.Sandbox(id)
	if l.Leading() == nil || p == nil || l.transitions[id] != nil || sandbox.PhaseOf(p.Object()) != sandbox.Running ||
		p.Object().DeletionTimestamp != nil {
		return
	}
	intent := pause.Read(p.Object())
	if intent == nil || pause.Decide(p.Object(), intent.Target, l.time.Now()).Step == pause.Rest {
		return
	}
	_, _ = l.transitionTo(id, intent.Target, tries) // if it cannot begin now, the Pod's next event retries
}

// transitionTo returns the transition under way, or a new one. It refuses one while the sandbox has another action.
func (l locked) transitionTo(id string, target pause.Target, tries int) (*transition, error) {
	if t := l.transitions[id]; t != nil && t.target == target {
		return t, nil
	}
	if l.Leading() == nil {
		return nil, disposition.NotServing()
	}
	a := resuming
	if target == pause.Paused {
		a = pausing
	}
	w, err := l.join(id, a)
	if err != nil {
		return nil, busy(err)
	}
	t := &transition{target: target, started: l.clock.Now(), watch: w, tries: tries, done: make(chan struct{})}
	l.transitions[id] = t
	// It ends with the term. The next leader continues it, and must not have to wait for it.
	ctx, s := l.Leading(), l.Service
	l.Begin(func() { s.carry(ctx, id, t) })
	return t, nil
}

// carry runs a transition to its end, and schedules a retry if steps are left.
func (s *Service) carry(ctx context.Context, id string, t *transition) {
	way := course{id: id, target: t.target, intends: true}
	err := s.wait(ctx, id, t.watch, transitionWait, func() (bool, error) {
		defer func() { way.intends = false }()
		return s.drive(ctx, &way)
	})
	result := "Done"
	switch {
	case errors.Is(err, errLate):
		result, err = "Late", nil // the caller gets the current state
	case err != nil && ctx.Err() != nil:
		err = disposition.Doubt("sandbox %s is not %s yet, and the worker stops leading; the next leader continues", id, t.target)
	}
	if err != nil {
		result = string(problem.FromError(err).Reason)
	}
	s.metrics.transitions.WithLabelValues(string(t.target), result).Observe(s.clock.Since(t.started).Seconds())
	s.update(func(l locked) {
		t.err = err
		close(t.done)
		delete(l.transitions, id)
		l.leave(id, t.watch)
		if err == nil {
			l.followTransition(id, 0)
		} else if p := l.Sandbox(id); l.Leading() != nil && p != nil && pause.Marked(p.Object()) && !l.nudged[id] {
			l.nudged[id] = true
			leading := l.Leading()
			l.Begin(func() { s.nudge(leading, id, t.tries+1) })
		}
	})
}

// nudge continues a sandbox's transition after a pause, when a write has failed.
func (s *Service) nudge(ctx context.Context, id string, tries int) {
	err := wallclock.Sleep(ctx, s.clock, min(time.Second<<min(tries, 5), 30*time.Second))
	s.update(func(l locked) {
		delete(l.nudged, id)
		if err == nil {
			l.followTransition(id, tries)
		}
	})
}
