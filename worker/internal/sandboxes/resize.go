// SPDX-License-Identifier: Apache-2.0

package sandboxes

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
	"navix.sh/atoll/worker/internal/pause"
	"navix.sh/atoll/worker/internal/sandbox"
)

// maxSteps bounds the writes of a transition, and the tries to make them.
const maxSteps = 8

// course is the target of a transition.
type course struct {
	id     string
	target pause.Target
	// intends is set if the target may be written on the Pod. Once written, only a call with another target changes it.
	intends bool
}

// drive takes all steps that are possible now. settled is true if there is nothing to wait for.
func (s *Service) drive(ctx context.Context, way *course) (settled bool, err error) {
	settled, refused, err := s.steps(ctx, way)
	if refused == nil {
		return settled, err
	}
	s.takeBack(ctx, way, refused)
	if way.target == pause.Running {
		stays := problem.New(problem.NoCapacity, "sandbox %s stays paused: %w", way.id, refused)
		return true, disposition.Fault(stays.WithRetryAfter(problem.RetrySoon))
	}
	return true, disposition.Fault(problem.New(problem.Unimplemented, "sandbox %s cannot be paused: %w", way.id, refused))
}

// takeBack undoes the writes of a refused transition. If that fails, it is undone later: until then each try gets the same refusal.
func (s *Service) takeBack(ctx context.Context, way *course, why error) {
	pod, record, err := s.live(ctx, way.id)
	if err != nil || record != nil || !pause.Marked(pod) {
		return
	}
	back := course{id: way.id, target: pause.Running, intends: true}
	if way.target == pause.Running {
		back.target = pause.Paused
	}
	if _, refused, err := s.steps(ctx, &back); refused != nil || err != nil {
		s.opts.Log.Error(errors.Join(refused, err), "Could not undo a refused transition",
			"sandbox", way.id, "wanted", way.target, "why", why.Error())
	}
}

// steps takes the steps of drive. It returns a refusal separately from other errors.
func (s *Service) steps(ctx context.Context, way *course) (settled bool, refused, err error) {
	for try := range maxSteps {
		pod, record, err := s.live(ctx, way.id)
		if err != nil || record != nil {
			return true, nil, err
		}
		intent := pause.Read(pod)
		if !way.intends && (intent == nil || intent.Target != way.target) {
			return true, nil, nil
		}
		if intent == nil && way.target == pause.Paused {
			pod, err = s.readLive(ctx, way.id, pod)
		}
		got, d := inventory.Unclear, pause.Decision{}
		if pod != nil && err == nil {
			d = pause.Decide(pod, way.target, s.time.Now())
			switch d.Step {
			case pause.Rest:
				return arrived(pod, way.target), nil, nil
			case pause.Refuse:
				return true, fmt.Errorf("%s: %s", d.Reason, d.Message), nil
			}
			got, err = s.step(ctx, way.id, pod, d)
		}
		switch {
		case pod == nil: // it has changed, and the index has been updated
		case errors.Is(err, inventory.ErrSetBack):
			return true, nil, disposition.Doubt("resizing sandbox %s: %w", way.id, err)
		case got == inventory.Written:
			way.intends = way.intends && d.Step != pause.Write
			continue
		case d.Step == pause.Resize && refusedForGood(got, err):
			return true, fmt.Errorf("the API server refuses to resize its Pod: %w", err), nil
		case d.Step == pause.Resize && got == inventory.NoPod && s.runsOn(way.id, pod):
			return true, errors.New("the API server does not resize Pods, which it can since Kubernetes 1.33"), nil
		}
		last := err
		if err := wallclock.Sleep(ctx, s.clock, min(20*time.Millisecond<<try, time.Second)); err != nil || try == maxSteps-1 {
			return true, nil, disposition.Doubt("resizing sandbox %s: %w", way.id, errors.Join(err, last))
		}
	}
	return true, nil, disposition.Doubt("resizing sandbox %s: its Pod changes all the time", way.id)
}

// readLive reads a Pod live, because a pause needs fields that the cache lacks. It returns nil if the sandbox no longer runs on the Pod.
func (s *Service) readLive(ctx context.Context, id string, seen *corev1.Pod) (*corev1.Pod, error) {
	live, err := s.inventory.Client().Read(ctx, seen)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, err
	case err != nil, live.UID != seen.UID, sandbox.Read(live).ID != id, sandbox.PhaseOf(live) != sandbox.Running:
		return nil, s.inventory.Reread(ctx, seen)
	}
	return live, nil
}

// step carries out one step.
func (s *Service) step(ctx context.Context, id string, pod *corev1.Pod, d pause.Decision) (inventory.Result, error) {
	if d.Step == pause.Resize {
		return s.inventory.Write(ctx, id, pod, sandbox.ResizePatch(pod, d.Changes), "resize")
	}
	patch, err := sandbox.PausePatch(pod, d.Intent, s.time.Now()) // Intent is nil when it is cleared
	if err != nil {
		return inventory.Faulty, err
	}
	return s.inventory.Write(ctx, id, pod, patch)
}

// refusedForGood reports whether a refusal is permanent, so that a retry would not change it.
func refusedForGood(got inventory.Result, err error) bool {
	return got == inventory.Faulty || got == inventory.Denied && !apierrors.IsTooManyRequests(err) && !apierrors.IsUnauthorized(err)
}

// runsOn reports whether a sandbox is still on the Pod that it was seen on.
func (s *Service) runsOn(id string, pod *corev1.Pod) (runs bool) {
	s.inventory.View(func(v *inventory.View) {
		p := v.Sandbox(id)
		runs = p != nil && p.Object().UID == pod.UID && sandbox.PhaseOf(p.Object()) == sandbox.Running
	})
	return runs
}

// arrived reports whether there is nothing more to wait for: the target is reached, or the node reports a long delay.
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
