// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/idle"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandbox"
)

// maxChangeTries bounds how often a change is tried while the Pod changes or the API server does not respond.
const maxChangeTries = 3

// Update changes the timeouts of a live sandbox. It returns the record if the sandbox has already ended.
func (s *Service) Update(ctx context.Context, r *sandboxv1.UpdateSandboxRequest) (*sandboxv1.Sandbox, error) {
	if faults := validate.Update(r); len(faults) > 0 {
		return nil, disposition.Fault(problem.InvalidFields(faults...))
	}
	change := sandbox.TimeoutsChange{Idle: durationOf(r.GetIdleTimeout()), MaxLifetime: durationOf(r.GetMaxLifetime())}
	return s.change(ctx, r.GetId(), func(pod *corev1.Pod) []byte { return sandbox.TimeoutsPatch(pod, change) })
}

func durationOf(d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	return new(d.AsDuration())
}

// Prepared ends the preparation of a sandbox. From then on callers see it running, and can reach it.
func (s *Service) Prepared(ctx context.Context, id string) error {
	record, err := s.change(ctx, id, sandbox.PreparedPatch)
	if err == nil && outcome.Over(record) {
		return disposition.NotFound("sandbox %s has ended: %s", id, outcome.Cause(record))
	}
	return err
}

// Touch records activity of a sandbox. It returns the record if the sandbox has already ended.
func (s *Service) Touch(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	_, record, err := s.live(ctx, id)
	if err != nil || record != nil {
		return record, err
	}
	if err := s.timeouts.Touch(ctx, id); err != nil {
		if ctx.Err() != nil {
			return nil, disposition.Doubtful(problem.New(problem.Deadline, "recording activity of sandbox %s: %w", id, err))
		}
		return nil, err
	}
	return s.Find(ctx, id)
}

// writeActive writes when a sandbox was last active. A sandbox that has ended needs no write.
func (s *Service) writeActive(ctx context.Context, id string, at time.Time) error {
	written := s.time.Ago(s.clock.Since(at))
	_, err := s.change(ctx, id, func(pod *corev1.Pod) []byte { return sandbox.ActivePatch(pod, written) })
	return err
}

// change writes on the Pod of a live sandbox, and returns the sandbox after the write.
func (s *Service) change(ctx context.Context, id string, patch func(pod *corev1.Pod) []byte) (*sandboxv1.Sandbox, error) {
	done, err := s.changes.Acquire(ctx, id)
	if err != nil {
		return nil, disposition.Doubt("changing sandbox %s: %w", id, err)
	}
	defer done()
	return s.write(ctx, id, "changing", maxChangeTries, func() (e edit, err error) {
		if e.pod, e.record, err = s.live(ctx, id); e.pod != nil {
			e.patch = patch(e.pod)
		}
		return e, err
	})
}

// expire ends a sandbox whose time is up, unless newer state contradicts that. After any other result, its timeouts are checked again.
func (s *Service) expire(ctx context.Context, id string) error {
	defer s.blockReach(id)() // it may still stay
	e := s.prepareExpiry(id)
	if e.pod == nil {
		return nil
	}
	switch got, err := s.inventory.Write(ctx, id, e.pod, e.patch); got {
	case inventory.Written, inventory.Lost, inventory.NoPod:
		return nil
	default:
		return fmt.Errorf("ending sandbox %s: %w", id, err)
	}
}

// prepareExpiry returns an empty edit for a sandbox that stays, or that this leader must not end. It calls Decide with the lock held, so
// that the decision and the Pod that the write is tested against are of the same moment.
func (s *Service) prepareExpiry(id string) (e edit) {
	s.inventory.View(func(v *inventory.View) {
		p := v.Sandbox(id)
		if !v.Serving() || p == nil || !p.Live() {
			return
		}
		if d := s.timeouts.Decide(id); d.Reason != "" {
			e.pod, e.patch = p.Object(), sandbox.ExpirePatch(p.Object(), returnsTo(p), endOf(d), s.time.Now())
		}
	})
	return e
}

func endOf(d idle.Decision) sandbox.End {
	return sandbox.End{StopReason: v1alpha1.SandboxStopReasonReleased, Reason: string(d.Reason), Message: d.Message()}
}

// follow passes the timeouts of a Pod's sandbox to package idle, if this process enforces them. before is the sandbox that the Pod had.
func (l locked) follow(before string, p *inventory.Pod) {
	id := p.Sandbox()
	if before != "" && before != id {
		l.timeouts.Forget(before)
		l.shut(before)
	}
	if id != "" && !reachable(p.Object()) {
		l.shut(id)
	}
	if id == "" || l.Leading() == nil {
		return
	}
	state := sandbox.Read(p.Object())
	if !state.Phase.Live() || p.Object().DeletionTimestamp != nil {
		l.timeouts.Forget(id)
		return
	}
	l.timeouts.See(id, timeoutsOf(&state), state.Phase == sandbox.Running)
}

// takeOver takes over the timeouts of a sandbox that existed before this process led.
func (l locked) takeOver(p *inventory.Pod) {
	state := sandbox.Read(p.Object())
	if !state.Phase.Live() || p.Object().DeletionTimestamp != nil {
		return
	}
	written := idle.Written{Claimed: state.ClaimedAt, Started: state.StartedAt, Active: state.LastActive}
	running := state.Phase == sandbox.Running
	l.timeouts.Take(p.Sandbox(), idle.TakeOver(timeoutsOf(&state), written, running, l.time.Since, l.clock.Now()))
}

// DistrustActivity restarts the idle time of all sandboxes. A leader calls it when it learns that etcd was restored from a backup, because
// activity that was written since that backup is lost.
func (s *Service) DistrustActivity() {
	s.update(func(l locked) { l.distrust = true })
	s.timeouts.Renew()
}

func timeoutsOf(state *sandbox.State) idle.Timeouts {
	return idle.Timeouts{
		Idle: state.Timeouts.Idle, MaxLifetime: state.Timeouts.MaxLifetime, FirstActivity: state.Timeouts.FirstActivity,
		Paused: state.Paused,
	}
}
