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

// Place is where a sandbox runs.
type Place struct {
	Pod       types.NamespacedName
	UID       types.UID
	Container string         // the sandbox's own, to which runtimes belong
	Allowed   allowed.Lists  // with the other containers that callers reach
	PortFault *problem.Error // why callers reach no port of the Pod; nil: they do
	Runtimes  []v1alpha1.SandboxRuntimeSpec
	Team      string // whose sandbox it is
	Preparing bool   // its daemon does not have the claim's environment yet
}

// Starting is the error of a caller that reaches for a sandbox too early.
func Starting(id string) error {
	return disposition.Fault(problem.New(problem.Unavailable, "sandbox %s is starting", id).WithRetryAfter(startingRetry))
}

// Locate returns where a running sandbox is.
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
	case open(p.Object()) && p.Ending == 0:
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

// open reports whether the sandbox on a Pod can be reached. A sandbox that starts cannot: the container may still be the one from
// before the image swap.
func open(pod *corev1.Pod) bool {
	return sandbox.PhaseOf(pod) == sandbox.Running && pod.DeletionTimestamp == nil
}

// OnShut calls f for a sandbox that can no longer be reached here: before its release is written, as soon as its end is seen, and
// before any caller learns of it. An empty id means all of them. f does not block. Call OnShut before Watch.
func (s *Service) OnShut(f func(id string)) {
	s.update(func(l locked) { l.onShut = append(l.onShut, f) })
}

// shut reports, once the lock is released, that a sandbox cannot be reached.
func (l locked) shut(id string) {
	if id != "" {
		l.tellShut(id)
	}
}

// shutAll is shut for every sandbox.
func (l locked) shutAll() { l.tellShut("") }

func (l locked) tellShut(id string) {
	for _, f := range l.onShut {
		l.After(func() { f(id) })
	}
}

// closing is holdingOff, and also ends what is open into the sandbox.
func (s *Service) closing(id string) (done func()) {
	done = s.holdingOff(id)
	s.update(func(l locked) {
		if l.Sandbox(id) != nil {
			l.shut(id)
		}
	})
	return done
}

// holdingOff lets no caller into a sandbox whose end is about to be written, until done. If the sandbox stays, later callers get
// in.
func (s *Service) holdingOff(id string) (done func()) {
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

// BeginExec notes that the API server gets a command for a sandbox on a Pod. A request that it still holds may be carried out in
// whatever container the Pod has by then, so the Pod is not reset (I13). done notes that the outcome of the command is known. ok
// is false where no command may be sent: the end of the sandbox is being written, as a reset perhaps, or the sandbox is not on
// that Pod.
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

// returnsTo returns the pool that a reset returns the Pod to. An empty one means that no pool takes it, and the Pod is replaced.
func returnsTo(p *inventory.Pod) *v1alpha1.SandboxPoolSpec {
	if spec := p.Pool().Spec(); spec != nil && p.Executing == 0 {
		return spec
	}
	return &v1alpha1.SandboxPoolSpec{}
}
