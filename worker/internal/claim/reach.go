// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/sandbox"
)

// startingRetry is when to ask again for a sandbox that starts.
const startingRetry = time.Second

// Place is where a sandbox runs.
type Place struct {
	Pod        types.NamespacedName
	UID        types.UID
	Containers []string // the sandbox's own first, to which runtimes belong
	Runtimes   []v1alpha1.SandboxRuntimeSpec
}

// Locate answers where a running sandbox is.
func (s *Service) Locate(id string) (Place, error) {
	s.mu.Lock()
	defer s.unlock()
	if !s.servingLocked() {
		return Place{}, notServing()
	}
	e := s.byID[id]
	if e == nil || !open(e.pod) || e.ending > 0 {
		record := s.showLocked(id)
		switch {
		case record == nil:
			return Place{}, s.noSandbox(id)
		case e != nil && sandbox.PhaseOf(e.pod) == sandbox.Starting && e.pod.DeletionTimestamp == nil:
			return Place{}, fault(problem.New(problem.Unavailable, "sandbox %s is starting", id).WithRetryAfter(startingRetry))
		default:
			return Place{}, notFound("sandbox %s has ended, or is about to: %s", id, record.GetStopReason())
		}
	}
	place := Place{Pod: types.NamespacedName{Namespace: e.pod.Namespace, Name: e.pod.Name}, UID: e.pod.UID, Runtimes: runtimesOf(e.pool)}
	for i := range e.pod.Spec.Containers {
		place.Containers = append(place.Containers, e.pod.Spec.Containers[i].Name)
	}
	return place, nil
}

// open reports whether the sandbox on a Pod can be reached. One that starts cannot: what runs in it may still be what ran
// before its image was swapped.
func open(pod *corev1.Pod) bool {
	return sandbox.PhaseOf(pod) == sandbox.Running && pod.DeletionTimestamp == nil
}

// OnShut calls f for a sandbox that can no longer be reached here: before its release is written, as soon as it is seen to
// have ended, and before anybody is told so. An empty id means all of them. f must not block. Call OnShut before Watch.
func (s *Service) OnShut(f func(id string)) {
	s.mu.Lock()
	defer s.unlock()
	s.onShut = append(s.onShut, f)
}

// shut notes that a sandbox cannot be reached; it is told at unlock. The lock is held.
func (s *Service) shut(id string) {
	if id != "" && len(s.onShut) > 0 {
		s.shutNow = append(s.shutNow, id)
	}
}

// shutAll is shut for every sandbox. The lock is held.
func (s *Service) shutAll() {
	if len(s.onShut) > 0 {
		s.shutNow = append(s.shutNow, "")
	}
}

// shutting shuts a sandbox whose end is about to be written: from now on nobody gets in, and what is open ends if it is cut.
// The answer lets in again those who come after, should the sandbox go on.
func (s *Service) shutting(id string, cut bool) (done func()) {
	s.mu.Lock()
	defer s.unlock()
	e := s.byID[id]
	if e == nil {
		return func() {}
	}
	e.ending++
	if cut {
		s.shut(id)
	}
	return func() {
		s.mu.Lock()
		defer s.unlock()
		e.ending--
	}
}

// Executing notes that the API server was asked to run something in a Pod, and with -1 that it is known what came of it. A
// request that it still holds may be carried out in whatever container the Pod has by then (I13).
func (s *Service) Executing(pod types.UID, more int) {
	s.mu.Lock()
	defer s.unlock()
	if e := s.pods[pod]; e != nil {
		e.executing += more
	}
}

// Execute is Executing for a command that is about to be sent for a sandbox. It answers false where it must not be: the end of
// the sandbox is being written, as a reset perhaps, or it is not on that Pod.
func (s *Service) Execute(pod types.UID, id string) bool {
	s.mu.Lock()
	defer s.unlock()
	e := s.pods[pod]
	if e == nil || e.id != id || e.ending > 0 || !sandbox.PhaseOf(e.pod).Live() {
		return false
	}
	e.executing++
	return true
}

// returnsTo is the pool as far as the reset of a Pod is concerned. An empty one means that there is nothing to return to, and
// the Pod is replaced. The lock is held.
func (e *entry) returnsTo() *v1alpha1.SandboxPoolSpec {
	if e.pool.spec == nil || e.executing > 0 {
		return &v1alpha1.SandboxPoolSpec{}
	}
	return e.pool.spec
}
