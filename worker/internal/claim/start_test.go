// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/inventory/inventorytest"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandboxes"
)

func TestStartsAnother(t *testing.T) {
	ended := func(stop, reason string) *sandboxv1.Sandbox {
		return &sandboxv1.Sandbox{StopReason: stop, FailureReason: reason}
	}
	exited := ended("Failed", "Error")
	exited.ExitCode = new(int32(1))
	for name, tc := range map[string]struct {
		failed failedStart
		want   bool
	}{
		"took too long":              {failedStart{ended("Failed", sandboxes.StartupTimeout), 1, time.Minute}, true},
		"its node went":              {failedStart{ended("Failed", "NodeLost"), 2, time.Minute}, true},
		"its Pod is being deleted":   {failedStart{ended("", ""), 1, time.Minute}, true},
		"nothing is known of it":     {failedStart{nil, 1, time.Minute}, true},
		"the last one":               {failedStart{ended("Failed", "NodeLost"), maxStarts, time.Minute}, false},
		"just enough time":           {failedStart{ended("Failed", "NodeLost"), 1, startReserve}, true},
		"too little time":            {failedStart{ended("Failed", "NodeLost"), 1, startReserve - 1}, false},
		"an image that is not there": {failedStart{ended("Failed", "ImagePullBackOff"), 1, time.Minute}, false},
		"its hook failed":            {failedStart{ended("Failed", hooks.ReasonFailed), 1, time.Minute}, false},
		"its command failed":         {failedStart{exited, 1, time.Minute}, false},
		"its command was done":       {failedStart{ended("Completed", ""), 1, time.Minute}, false},
		"released":                   {failedStart{ended("Released", ""), 1, time.Minute}, false},
		"canceled":                   {failedStart{ended("Canceled", "Canceled"), 1, time.Minute}, false},
	} {
		if got := startsAnother(tc.failed); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// creating is a claim under way.
type creating struct {
	record *sandboxv1.Sandbox
	err    error
	done   chan struct{}
}

func (s *station) begin(ctx context.Context, c Claim) *creating {
	out := &creating{done: make(chan struct{})}
	go func() {
		defer close(out.done)
		out.record, out.err = s.Create(ctx, c)
	}()
	return out
}

// swapped claims an image that no idle Pod has, so that its sandbox starts.
func (s *station) swapped(change func(*Claim)) *creating {
	s.t.Helper()
	c := Claim{Request: &sandboxv1.CreateSandboxRequest{
		Team: "red", User: "ann", Image: "i:2", Wait: sandboxv1.CreateSandboxRequest_READY, StartupTimeout: durationpb.New(time.Minute),
	}, Pool: inventorytest.Pool}
	change(&c)
	out := s.begin(s.t.Context(), c)
	synctest.Wait()
	return out
}

// failStart ends the sandbox on a Pod because its node is gone.
func (s *station) failStart(name string) (id string) {
	s.t.Helper()
	pod := s.API.Pod(name)
	state := sandbox.Read(pod)
	if state.Phase != sandbox.Starting {
		s.t.Fatalf("Pod %s is %s", name, state.Phase)
	}
	end := sandbox.End{StopReason: v1alpha1.SandboxStopReasonFailed, Reason: "NodeLost", Message: "it is gone"}
	s.API.Apply(name, sandbox.FailPatch(pod, end, time.Now()))
	s.See(s.API.Pod(name))
	return state.ID
}

// A claim that may still wait gets another Pod after a failed start, from its old place.
func TestAFailedStartGivesWayToAnotherPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		s.Appear(s.IdlePod("a"))
		claimed := s.swapped(func(*Claim) {})
		later := s.wants("ann")
		time.Sleep(20 * time.Second)
		first := s.failStart("a")
		ready := s.IdlePod("b")
		ready.Spec.Containers[0].Image, ready.Status.ContainerStatuses[0].Image = "i:2", "i:2"
		ready.Status.PodIP = "10.0.0.7"
		s.Appear(ready)
		select {
		case <-claimed.done:
		default:
			t.Fatal("it waits on")
		}
		if claimed.err != nil || claimed.record.GetPod() != "b" || claimed.record.GetId() == first || later.got != nil {
			t.Fatalf("answered %v, %v; who came later has a Pod: %t", claimed.record, claimed.err, later.got != nil)
		}
		if got := claimed.record.GetStartupTimeout().AsDuration(); got != 40*time.Second {
			t.Errorf("it may start for %s, want what is left", got)
		}
	})
}

func TestAClaimIsGivenSoManyStarts(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Claim)
		pods   int // that are idle from the beginning
		starts int
	}{
		"while there are Pods":    {func(*Claim) {}, maxStarts + 1, maxStarts},
		"with noQueue, what idle": {func(c *Claim) { c.Request.NoQueue = true }, 2, 2},
		"with little time":        {func(c *Claim) { c.Request.StartupTimeout = durationpb.New(4 * time.Second) }, 2, 1},
		"with a key": {func(c *Claim) {
			c.Request.ClaimKey, c.KeyHash, c.Attempt = "k", sandbox.KeyHash("red", "default", "k"), 1
		}, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStation(t, 8)
				for i := range tc.pods {
					s.Appear(s.IdlePod(fmt.Sprint("p", i)))
				}
				claimed := s.swapped(tc.change)
				var last string
				for i := range tc.starts {
					// What was idle last is handed out first.
					last = s.failStart(fmt.Sprint("p", tc.pods-1-i))
				}
				synctest.Wait()
				select {
				case <-claimed.done:
				default:
					t.Fatal("it waits on")
				}
				if name == "with a key" { // as each later call with the key gets it
					if got := claimed.record; claimed.err != nil || !outcome.Over(got) || got.GetId() != last || got.GetFailureReason() != "NodeLost" {
						t.Errorf("answered %v, %v, want the record of %s", got, claimed.err, last)
					}
				} else if err := claimed.err; problem.FromError(err).Reason != problem.Unavailable || !strings.Contains(err.Error(), last) ||
					!strings.Contains(err.Error(), "NodeLost") {
					t.Errorf("answered %v, want why %s failed", err, last)
				}
				if got := s.stats(); got.Waiting != 0 || got.Claiming != 0 || int(got.ReadyIdle) != tc.pods-tc.starts {
					t.Errorf("left behind: %+v", got)
				}
			})
		})
	}
}

// A write that is unclear is not hidden behind the failure of the sandbox before.
func TestAnotherPodWhoseWriteIsUnclear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		a, b := s.IdlePod("a"), s.IdlePod("b")
		s.API.Put(b)
		s.Appear(a)
		claimed := s.swapped(func(*Claim) {})
		s.failStart("a")
		s.API.Respond(func(int, func() (*http.Response, error)) (*http.Response, error) {
			return nil, errors.New("connection lost")
		})
		s.See(b)
		<-claimed.done
		if problem.FromError(claimed.err).Reason != problem.OutcomeUnknown {
			t.Errorf("answered %v", claimed.err)
		}
	})
}
