// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/sandbox"
)

// TestScaleDownSparesSandboxes is I6.
func TestScaleDownSparesSandboxes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.makeEnv("env", 1)
	w.makePool("p", 5, inGroup("env"))
	pods := w.awaitIdle("p", 5, 0)
	w.Must(w.claim(&pods[0], "sb-running", "test.local/idle:1", 0))
	w.Must(w.claim(&pods[1], "sb-swapped", "test.local/other:1", 0))
	w.setReplicas("p", 0)
	w.Eventually("idle pods to go", func() error {
		n := len(w.pods("p", ""))
		return wait.If(n == 2, n)
	})
	w.awaitPhase(pods[0].Name, sandbox.Running)
	w.awaitPhase(pods[1].Name, sandbox.Running)
	w.Eventually("the phase", func() error {
		st := w.Pool("p").Status
		return wait.If(st.Phase == v1alpha1.SandboxPoolPhaseScalingDown && st.RunningReplicas == 2 && st.IdleReplicas == 0, st)
	})
	if n := len(w.ledger.records); n != 0 {
		t.Errorf("%d sandboxes ended", n)
	}
	w.release("p", pods[1].Name)
	w.awaitRecord("sb-swapped", v1alpha1.SandboxStopReasonReleased, "")
	w.awaitGone(&pods[1])
	w.awaitPhase(pods[0].Name, sandbox.Running)
}

// TestMarkedPodCanBeClaimed: a claim within the window keeps the Pod.
func TestMarkedPodCanBeClaimed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.makeEnv("env", 3)
	w.makePool("p", 2, inGroup("env"))
	w.awaitIdle("p", 2, 0)
	w.setReplicas("p", 0)
	var marked corev1.Pod
	w.Eventually("a mark", func() error {
		for _, pod := range w.pods("p", sandbox.Idle) {
			if sandbox.MarkedAt(&pod) != "" {
				marked = pod
				return nil
			}
		}
		return errors.New("none")
	})
	w.Must(w.claim(&marked, "sb-late", "test.local/idle:1", 0))
	w.Eventually("the other pod to go", func() error {
		n := len(w.pods("p", ""))
		return wait.If(n == 1, n)
	})
	if pod := w.pod(marked.Name); sandbox.PhaseOf(pod) != sandbox.Running || sandbox.MarkedAt(pod) != "" || pod.DeletionTimestamp != nil {
		t.Errorf("the claimed Pod is %s, marked %q, deleted %v", sandbox.PhaseOf(pod), sandbox.MarkedAt(pod), pod.DeletionTimestamp)
	}
}

func TestMarksGoWhenReplicasRise(t *testing.T) {
	w := newWorld(t)
	w.makePool("p", 3)
	before := w.awaitIdle("p", 3, 0)
	w.setReplicas("p", 0)
	awaitMarks := func(want int) {
		t.Helper()
		w.Eventually(fmt.Sprintf("%d marks", want), func() error {
			marked := slices.DeleteFunc(w.pods("p", sandbox.Idle), func(p corev1.Pod) bool { return sandbox.MarkedAt(&p) == "" })
			return wait.If(len(marked) == want, len(marked))
		})
	}
	awaitMarks(3)
	w.setReplicas("p", 3)
	awaitMarks(0)
	after := w.awaitIdle("p", 3, 0)
	for i := range before {
		if before[i].UID != after[i].UID {
			t.Errorf("pod %s was replaced", before[i].Name)
		}
	}
}

// TestDeleteLosesToAClaim is I1 and I6: a Pod that was idle at the decision, and is claimed when the delete arrives, stays.
func TestDeleteLosesToAClaim(t *testing.T) {
	w := newWorld(t)
	pool := w.makePool("p", 1)
	pod := w.awaitIdle("p", 1, 0)[0]
	w.Must(w.claim(&pod, "sb-first", "test.local/idle:1", 0))
	s := &snapshot{Pool: pool}
	if err := w.perform(w.ctx, w.Key("p"), s, action{Verb: verbDelete, Pod: &pod, Reason: reasonScaleDown}); err != nil {
		t.Errorf("losing is no error: %v", err)
	}
	if err := w.perform(w.ctx, w.Key("p"), s, action{Verb: verbMark, Pod: &pod, Reason: reasonScaleDown}); err != nil {
		t.Errorf("losing is no error: %v", err)
	}
	current := w.pod(pod.Name)
	if current.DeletionTimestamp != nil || sandbox.MarkedAt(current) != "" {
		t.Errorf("the sandbox's Pod: deleted %v, marked %q", current.DeletionTimestamp, sandbox.MarkedAt(current))
	}
	if !w.expectations.Settled(w.Key("p")) {
		t.Error("a delete that was refused is still waited for")
	}
}

// TestClaimsSurviveScaleDown lets claims and a scale-down without a window race
// for the same Pods.
func TestClaimsSurviveScaleDown(t *testing.T) {
	w := newWorld(t)
	w.makeEnv("env", 0)
	w.makePool("p", 40, inGroup("env"))
	pods := w.awaitIdle("p", 40, 0)
	won := make([]bool, len(pods))
	w.setReplicas("p", 0)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := worker; i < len(pods); i += 4 {
				err := w.claim(&pods[i], fmt.Sprintf("sb-%d", i), "test.local/idle:1", 0)
				won[i] = err == nil
				if err != nil && !patch.LostRace(err) {
					t.Errorf("claim: %v", err)
				}
			}
		})
	}
	wg.Wait()
	w.Eventually("idle pods to go", func() error {
		n := len(w.pods("p", sandbox.Idle))
		return wait.If(n <= 0, n)
	})
	claimed := 0
	for i := range pods {
		if !won[i] {
			continue
		}
		claimed++
		if pod := w.pod(pods[i].Name); pod.DeletionTimestamp != nil || sandbox.PhaseOf(pod) != sandbox.Running {
			t.Errorf("claimed pod %s is %s, deleted %v", pod.Name, sandbox.PhaseOf(pod), pod.DeletionTimestamp)
		}
	}
	t.Logf("%d of %d claims won", claimed, len(pods))
}
