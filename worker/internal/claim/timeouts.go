// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/idle"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// DefaultFirstActivityTimeout is that of claims without a key: nobody can ask again for what they were given.
	DefaultFirstActivityTimeout = 5 * time.Minute
	// maxChangeTries bounds how often a change starts again because the Pod has changed, or the API server did not answer.
	maxChangeTries = 3
)

// resolveTimeouts is what a claim writes: what the request says, else the pool, else the default.
func resolveTimeouts(c *Claim, spec *v1alpha1.SandboxPoolSpec) idle.Timeouts {
	r := c.Request
	t := idle.Timeouts{
		Idle: r.GetIdleTimeout().AsDuration(), Lifetime: r.GetMaxLifetime().AsDuration(),
		FirstActivity: r.GetFirstActivityTimeout().AsDuration(),
	}
	if d := spec.DefaultIdleTimeout; r.GetIdleTimeout() == nil && d != nil {
		t.Idle = d.Duration
	}
	if r.GetFirstActivityTimeout() == nil && c.KeyHash == "" {
		t.FirstActivity = DefaultFirstActivityTimeout
	}
	return t
}

// Update changes the timeouts of a live sandbox. One that has ended answers its record.
func (s *Service) Update(ctx context.Context, r *sandboxv1.UpdateSandboxRequest) (*sandboxv1.Sandbox, error) {
	if faults := validate.Update(r); len(faults) > 0 {
		return nil, fault(problem.InvalidFields(faults...))
	}
	change := sandbox.TimeoutsChange{Idle: durationOf(r.GetIdleTimeout()), Lifetime: durationOf(r.GetMaxLifetime())}
	return s.change(ctx, r.GetId(), func(pod *corev1.Pod) []byte { return sandbox.TimeoutsPatch(pod, change) })
}

func durationOf(d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	return new(d.AsDuration())
}

// Touch records activity of a sandbox. One that has ended answers its record.
func (s *Service) Touch(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	_, record, err := s.live(ctx, id)
	if err != nil || record != nil {
		return record, err
	}
	if err := s.timeouts.Touch(ctx, id); err != nil {
		if ctx.Err() != nil {
			return nil, doubtful(problem.New(problem.Deadline, "recording activity of sandbox %s: %w", id, err))
		}
		return nil, err
	}
	record, _, err = s.get(ctx, id)
	return record, err
}

// writeActive writes down when a sandbox was last active. One that has ended needs that no more.
func (s *Service) writeActive(ctx context.Context, id string, at time.Time) error {
	written := s.opts.Time.Ago(s.opts.Clock.Since(at))
	_, err := s.change(ctx, id, func(pod *corev1.Pod) []byte { return sandbox.ActivePatch(pod, written) })
	return err
}

// change writes on the Pod of a live sandbox, and answers what it is then.
func (s *Service) change(ctx context.Context, id string, patch func(pod *corev1.Pod) []byte) (*sandboxv1.Sandbox, error) {
	var last error
	for try := range maxChangeTries {
		pod, record, err := s.live(ctx, id)
		if err != nil || record != nil {
			return record, err
		}
		got, err := s.attempt(ctx, id, pod, patch(pod))
		switch {
		case errors.Is(err, ErrSetBack):
			return nil, doubt("changing sandbox %s: %w", id, err)
		case got == written:
			record, _, err := s.get(ctx, id)
			return record, err
		case got == faulty:
			return nil, fault(problem.New(problem.Internal, "changing sandbox %s: %w", id, err))
		}
		last = err
		if err := wallclock.Sleep(ctx, s.opts.Clock, 20*time.Millisecond<<try); err != nil {
			break
		}
	}
	return nil, doubt("changing sandbox %s: %w", id, last)
}

// live answers the Pod of a live sandbox, or the record of one that is over or stopping.
func (s *Service) live(ctx context.Context, id string) (*corev1.Pod, *sandboxv1.Sandbox, error) {
	pod, shown, err := s.liveNow(id)
	if pod == nil && shown == nil && err == nil {
		shown, err = s.over(ctx, id)
	}
	return pod, shown, err
}

// liveNow answers nothing for a sandbox that is on no Pod.
func (s *Service) liveNow(id string) (*corev1.Pod, *sandboxv1.Sandbox, error) {
	s.mu.Lock()
	defer s.unlock()
	if !s.servingLocked() {
		return nil, nil, notServing()
	}
	if e := s.byID[id]; e != nil && sandbox.PhaseOf(e.pod).Live() {
		return e.pod, nil, nil
	}
	return nil, s.showLocked(id), nil
}

// expire ends a sandbox whose time is up, unless more is known by then. Whatever else comes of the write, its time is
// looked at again.
func (s *Service) expire(ctx context.Context, id string) error {
	defer s.shutting(id, false)() // it may yet go on
	pod, patch, err := s.prepareExpiry(id)
	if err != nil || pod == nil {
		return err
	}
	switch got, err := s.attempt(ctx, id, pod, patch); got {
	case written, lost, gone:
		return nil
	default:
		return fmt.Errorf("ending sandbox %s: %w", id, err)
	}
}

// prepareExpiry answers nothing for a sandbox that goes on, or is not this leader's to end. The decision and the Pod that
// the write is tested against are of one moment: see and Decide are both under the lock.
func (s *Service) prepareExpiry(id string) (*corev1.Pod, []byte, error) {
	s.mu.Lock()
	defer s.unlock()
	e := s.byID[id]
	if !s.servingLocked() || e == nil || !sandbox.PhaseOf(e.pod).Live() {
		return nil, nil, nil
	}
	d := s.timeouts.Decide(id)
	if d.Reason == "" {
		return nil, nil, nil
	}
	patch, _, err := sandbox.ExpirePatch(e.pod, e.returnsTo(), endOf(d), s.opts.Time.Now())
	if err != nil {
		return nil, nil, fmt.Errorf("building the end of %s: %w", id, err)
	}
	return e.pod, patch, nil
}

func endOf(d idle.Decision) sandbox.End {
	end := sandbox.End{StopReason: v1alpha1.SandboxStopReasonReleased, Reason: string(d.Reason)}
	switch d.Reason {
	case idle.MaxLifetime:
		end.Message = fmt.Sprintf("claimed %s ago", d.Limit)
	case idle.FirstActivityTimeout:
		end.Message = fmt.Sprintf("no activity in its first %s; touch a sandbox without a claim key to keep it, or claim it with firstActivityTimeout 0", d.Limit)
	default:
		end.Message = fmt.Sprintf("no activity for %s", d.Limit)
	}
	return end
}

// follow tells the timeouts of a Pod's sandbox, if this process ends sandboxes by them; before is the one that it had. The
// lock is held.
func (s *Service) follow(before string, e *entry) {
	if before != "" && before != e.id {
		s.timeouts.Forget(before)
		s.shut(before)
	}
	if e.id != "" && !open(e.pod) {
		s.shut(e.id)
	}
	if e.id == "" || s.leading == nil {
		return
	}
	state := sandbox.Read(e.pod)
	if !state.Phase.Live() || e.pod.DeletionTimestamp != nil {
		s.timeouts.Forget(e.id)
		return
	}
	s.timeouts.See(e.id, timeoutsOf(&state), state.Phase == sandbox.Running)
}

// takeOver takes over the timeouts of a sandbox that was there before this process led. The lock is held.
func (s *Service) takeOver(e *entry) {
	state := sandbox.Read(e.pod)
	if !state.Phase.Live() || e.pod.DeletionTimestamp != nil {
		return
	}
	written := idle.Written{Claimed: state.ClaimedAt, Started: state.StartedAt, Active: state.LastActive}
	s.timeouts.Take(e.id, idle.TakeOver(timeoutsOf(&state), written, state.Phase == sandbox.Running, s.opts.Time.Since, s.opts.Clock.Now()))
}

// DistrustActivity is for a leader that learns that etcd was set back: activity that was written down since is lost.
func (s *Service) DistrustActivity() {
	s.mu.Lock()
	defer s.unlock()
	s.distrust = true
	s.timeouts.Renew()
}

func timeoutsOf(state *sandbox.State) idle.Timeouts {
	return idle.Timeouts{Idle: state.IdleTimeout, Lifetime: state.MaxLifetime, FirstActivity: state.FirstActivityTimeout, Paused: state.Paused}
}
