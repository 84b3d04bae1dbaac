// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/allowed"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandbox"
)

// startingRetry is when to retry for a sandbox that starts.
const startingRetry = time.Second

// Place describes where a sandbox runs.
type Place struct {
	Pod       types.NamespacedName
	UID       types.UID
	Container string         // the sandbox's own, to which runtimes belong
	Allowed   allowed.Lists  // includes the other containers that callers reach
	PortFault *problem.Error // why callers reach no port of the Pod; nil if they do
	Runtimes  []v1alpha1.SandboxRuntimeSpec
	Team      string // that the sandbox belongs to
	Preparing bool   // its daemon does not have the claim's environment yet
}

// Starting returns the error for a caller that reaches into a sandbox too early.
func Starting(id string) error {
	return disposition.Fault(problem.New(problem.Unavailable, "sandbox %s is starting", id).WithRetryAfter(startingRetry))
}

// Locate returns the place of a running sandbox.
func (s *Service) Locate(id string) (place Place, err error) {
	s.inventory.View(func(v *inventory.View) { place, err = s.locate(v, id) })
	return place, err
}

func (s *Service) locate(v *inventory.View, id string) (Place, error) {
	p := v.Sandbox(id)
	switch {
	case !v.Serving():
		return Place{}, disposition.NotServing()
	case p == nil:
		return Place{}, s.noSandbox(id)
	case reachable(p.Object()) && p.Ending == 0:
	case sandbox.PhaseOf(p.Object()) == sandbox.Starting && p.Object().DeletionTimestamp == nil:
		return Place{}, Starting(id)
	default:
		return Place{}, disposition.NotFound("sandbox %s has ended, or is about to: %s", id, s.Show(p).GetStopReason())
	}
	pod := p.Object()
	return Place{
		Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID, Container: sandbox.MainContainer(&pod.Spec),
		Allowed: v.Allowed(p.Pool()), PortFault: allowed.Port(&pod.Spec), Runtimes: p.Pool().Runtimes(),
		Team: sandbox.Read(pod).Team, Preparing: sandbox.Preparing(pod),
	}, nil
}

// reachable reports whether the sandbox on a Pod can be reached. A starting sandbox cannot: the container may still be the one from before
// the image swap.
func reachable(pod *corev1.Pod) bool {
	return sandbox.PhaseOf(pod) == sandbox.Running && pod.DeletionTimestamp == nil
}

// OnShut registers f, which is called when a sandbox can no longer be reached here: before its release is written, when its end is seen,
// and before any caller learns of the end. An empty id means all sandboxes. f must not block. Call OnShut before Watch.
func (s *Service) OnShut(f func(id string)) {
	s.update(func(l locked) { l.onShut = append(l.onShut, f) })
}

// shut notifies the OnShut functions, after the lock is released, that a sandbox cannot be reached.
func (l locked) shut(id string) {
	if id != "" {
		l.notifyShut(id)
	}
}

// shutAll is shut for every sandbox.
func (l locked) shutAll() { l.notifyShut("") }

func (l locked) notifyShut(id string) {
	for _, f := range l.onShut {
		l.After(func() { f(id) })
	}
}

// closeReach is like blockReach, and also ends the open connections into the sandbox.
func (s *Service) closeReach(id string) (done func()) {
	done = s.blockReach(id)
	s.update(func(l locked) {
		if l.Sandbox(id) != nil {
			l.shut(id)
		}
	})
	return done
}

// blockReach keeps callers out of a sandbox whose end is about to be written, until done is called. If the sandbox stays, later callers are
// let in.
func (s *Service) blockReach(id string) (done func()) {
	var p *inventory.Pod
	s.update(func(l locked) {
		if p = l.Sandbox(id); p != nil {
			p.Ending++
		}
	})
	if p == nil {
		return func() {}
	}
	return func() { s.update(func(locked) { p.Ending-- }) }
}

// BeginExec records that a command is sent to the API server for a sandbox on a Pod. The API server may delay the request and then run it
// in any container that the Pod has by that time, so the Pod is not reset (I13). done records that the command's outcome is known. ok is
// false if no command may be sent: the end of the sandbox is being written, perhaps with a reset, or the sandbox is not on that Pod.
func (s *Service) BeginExec(pod types.UID, id string) (done func(), ok bool) {
	s.update(func(l locked) {
		p := l.Pod(pod)
		if p == nil || p.Sandbox() != id || p.Ending > 0 || !p.Live() {
			return
		}
		p.Executing++
		ok, done = true, func() { s.update(func(locked) { p.Executing-- }) }
	})
	return done, ok
}

// returnsTo returns the spec of the pool that a reset returns the Pod to. An empty spec means that no pool takes it, and the Pod is
// replaced.
func returnsTo(p *inventory.Pod) *v1alpha1.SandboxPoolSpec {
	if spec := p.Pool().Spec(); spec != nil && p.Executing == 0 {
		return spec
	}
	return &v1alpha1.SandboxPoolSpec{}
}
