// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"maps"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/history"
	"navix.sh/atoll/worker/internal/history/historytest"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/inventory/inventorytest"
	"navix.sh/atoll/worker/internal/sandbox"
)

const id = "01hx-east"

// station is a service that leads, with events from the test.
type station struct {
	*Service
	*inventorytest.Station
}

// bubble runs a test of a station with a Pod whose sandbox runs.
func bubble(t *testing.T, test func(t *testing.T, s *station, pod *corev1.Pod)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		at := inventorytest.New(t)
		s, err := New(at.Inventory, Options{History: historytest.New(t, clock.RealClock{})})
		must.Succeed(t, err)
		at.Lead()
		pod := at.ClaimedPod("a", id)
		at.Appear(pod)
		test(t, &station{s, at}, pod)
	})
}

// idle returns how many Pods can be handed out.
func (s *station) idle() (n int) {
	s.View(func(v *inventory.View) { n = v.Pool(inventorytest.Pool).Idle() })
	return n
}

// A sandbox that was returned to no caller ends, however long the API server is away: without a first-activity timeout nothing
// else would end it.
func TestUnreturnedSandboxesEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *station, _ *corev1.Pod) {
		s.API.Respond(func(int, func() (*http.Response, error)) (*http.Response, error) {
			return s.API.Status(http.StatusServiceUnavailable, "")
		})
		for range 100 {
			s.Abandon(id)
		}
		time.Sleep(5 * time.Minute)
		if n := s.InFlight(); n != 1 {
			t.Errorf("I10: %d at work for a sandbox", n)
		}
		before := s.API.Patches()
		time.Sleep(time.Minute)
		if n := s.API.Patches() - before; n > maxReleaseTries*int(time.Minute/maxDisposeAgain) {
			t.Errorf("I10: %d writes in a minute, so more than one is at work", n)
		}
		s.API.Respond(nil)
		time.Sleep(maxDisposeAgain + time.Second)
		synctest.Wait()
		if state := sandbox.Read(s.API.Pod("a")); state.Phase.Live() {
			t.Errorf("it lives: %+v", state)
		}
		if n := s.InFlight(); n != 0 {
			t.Errorf("%d at work in the end", n)
		}
	})
}

// A disposal that found no sandbox looks again if it was requested again: the sandbox may have appeared since.
func TestADisposalLooksAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *station, _ *corev1.Pod) {
		s.update(func(l locked) {
			l.disposing["x"] = false
			s.Dispose(l.State, "x", Abandoned())
			if !l.askedAgain(t.Context(), "x") || l.askedAgain(t.Context(), "x") || len(l.disposing) != 0 {
				t.Error("what was asked for under way is done once more, and once")
			}
		})
	})
}

// I13: a Pod that the API server may still run something in is not reset, and nothing is sent while its end is written.
func TestI13APodIsNotResetUnderACommand(t *testing.T) {
	bubble(t, func(t *testing.T, s *station, pod *corev1.Pod) {
		resets := func() (resets bool) {
			s.View(func(v *inventory.View) { resets = returnsTo(v.Sandbox(id)) == v.Pool(inventorytest.Pool).Spec() })
			return resets
		}
		for _, none := range []func() (func(), bool){
			func() (func(), bool) { return s.BeginExec(pod.UID, "another") },
			func() (func(), bool) { return s.BeginExec("gone", id) },
		} {
			if _, ok := none(); ok {
				t.Error("a command may be sent for a sandbox that is not there")
			}
		}
		written := s.closeReach(id)
		if _, ok := s.BeginExec(pod.UID, id); ok {
			t.Error("a command may be sent while the end is being written")
		}
		written()
		if !resets() {
			t.Error("a Pod without a command is replaced")
		}
		done, ok := s.BeginExec(pod.UID, id)
		if !ok || resets() {
			t.Error("a Pod with a command under way is reset")
		}
		if done(); !resets() {
			t.Error("a Pod whose command has ended is replaced")
		}
	})
}

// I1, I6, I13: labels that are edited by hand hide no sandbox and hand none out. It keeps its timeouts, and can be released.
func TestI13_LabelsEditedByHandHideNoSandbox(t *testing.T) {
	for name, edit := range map[string]func(*corev1.Pod){
		"an odd phase":          func(p *corev1.Pod) { p.Labels[v1alpha1.SandboxPhaseLabelKey] = "odd" },
		"no phase":              func(p *corev1.Pod) { delete(p.Labels, v1alpha1.SandboxPhaseLabelKey) },
		"idle":                  func(p *corev1.Pod) { p.Labels[v1alpha1.SandboxPhaseLabelKey] = "idle" },
		"failed":                func(p *corev1.Pod) { p.Labels[v1alpha1.SandboxPhaseLabelKey] = "failed" },
		"no sandbox":            func(p *corev1.Pod) { delete(p.Labels, v1alpha1.SandboxIDLabelKey) },
		"another sandbox":       func(p *corev1.Pod) { p.Labels[v1alpha1.SandboxIDLabelKey] = "01hy-east" },
		"no pool":               func(p *corev1.Pod) { delete(p.Labels, v1alpha1.SandboxPoolLabelKey) },
		"another pool":          func(p *corev1.Pod) { p.Labels[v1alpha1.SandboxPoolLabelKey] = "q" },
		"idle, and of no pool":  func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.SandboxPhaseLabelKey: "idle"} },
		"no labels that matter": func(p *corev1.Pod) { p.Labels = map[string]string{} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *station, pod *corev1.Pod) {
				s.See(s.Edited(pod, edit))
				if n := s.idle(); n != 0 {
					t.Errorf("%d Pods can be handed out", n)
				}
				if n := s.timeouts.Len(); n != 1 {
					t.Errorf("%d sandboxes with timeouts", n)
				}
				if s.HasEnded(id) {
					t.Error("it is recorded as ended")
				}
				if e, err := s.prepareEnd(id, Canceled("", "")); e.pod == nil || len(e.patch) == 0 || err != nil {
					t.Errorf("a release writes nothing: %v", err)
				}
				s.See(s.Edited(pod, func(*corev1.Pod) {}))
				if !s.Serving() {
					t.Error("put back, it is taken for an etcd that was set back")
				}
			})
		})
	}
}

// A sandbox whose Pod no longer shows it is recorded, and its Pod is not idle.
func TestASandboxThatWasTakenOffItsPodIsRecorded(t *testing.T) {
	bubble(t, func(t *testing.T, s *station, pod *corev1.Pod) {
		s.See(s.Edited(pod, func(p *corev1.Pod) {
			delete(p.Labels, v1alpha1.SandboxIDLabelKey)
			delete(p.Annotations, v1alpha1.SandboxIDAnnotationKey)
			p.Labels[v1alpha1.SandboxPhaseLabelKey] = "idle"
		}))
		record, err := s.Recorded(t.Context(), id)
		if err != nil || record.GetStopReason() != "Failed" || record.GetFailureReason() != "IdentityLost" {
			t.Errorf("recorded as %v, %v", record, err)
		}
		if n := s.idle(); n != 0 {
			t.Errorf("%d Pods can be handed out", n)
		}
	})
}

// A Pod that has lost its pool's label and its owner at once gets the label back, by which the pool finds it.
func TestASandboxWithoutAPoolIsGivenItBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *station, pod *corev1.Pod) {
		lost := s.Edited(pod, func(p *corev1.Pod) {
			delete(p.Labels, v1alpha1.SandboxPoolLabelKey)
			p.OwnerReferences = nil
		})
		s.Appear(lost)
		if got := s.API.Pod("a"); !maps.Equal(got.Labels, pod.Labels) {
			t.Errorf("labels %v, want %v", got.Labels, pod.Labels)
		}
		if _, err := s.Find(t.Context(), id); err != nil || s.HasEnded(id) {
			t.Errorf("the sandbox is taken to have ended: %v", err)
		}
	})
}

func TestEndedMemoryKeepsTheLatestAttempt(t *testing.T) {
	now := time.Now()
	store := newEndedStore()
	put := func(id string, attempt int32) {
		store.put(now, history.Record{Sandbox: &sandboxv1.Sandbox{Id: id}, KeyHash: "k", Attempt: attempt})
	}
	put("two", 2)
	put("one", 1)
	if got, _ := store.byKey(now, "k"); got.Sandbox.GetId() != "two" || got.Attempt != 2 {
		t.Errorf("the key's record is %v of attempt %d", got.Sandbox, got.Attempt)
	}
	if got, ok := store.byKey(now.Add(endedMemory), "k"); ok || len(store.keys) != 0 {
		t.Errorf("after its time: %v, %d keys", got.Sandbox, len(store.keys))
	}
}
