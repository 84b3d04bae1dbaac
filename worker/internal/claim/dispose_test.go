// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/worker/internal/sandbox"
)

// A sandbox that nobody was told of ends, however long the API server is away: nothing else would end one without a
// first-activity timeout.
func TestWhatNobodyWasToldOfEndsInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		pod := s.idlePod("a")
		p := newPlant(s, pod)
		s.see(pod)
		c := Claim{Request: &sandboxv1.CreateSandboxRequest{Team: "red", User: "ann", Wait: sandboxv1.CreateSandboxRequest_ASSIGNED}, Pool: s.pool.key}
		got, err := s.Create(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		p.set(func(int, func() (*http.Response, error)) (*http.Response, error) {
			return p.status(http.StatusServiceUnavailable, "")
		})
		for range 100 {
			s.Abandon(got.GetId())
		}
		time.Sleep(5 * time.Minute)
		s.mu.Lock()
		if s.running != 1 || len(s.disposing) != 1 {
			t.Errorf("I10: %d at work for %d sandboxes, want one", s.running, len(s.disposing))
		}
		s.unlock()
		p.set(nil)
		time.Sleep(maxDisposeAgain + time.Second)
		synctest.Wait()
		if state := sandbox.Read(p.pod("a")); state.Phase.Live() {
			t.Errorf("it lives: %+v", state)
		}
		if n := s.InFlight(); n != 0 {
			t.Errorf("%d at work in the end", n)
		}
	})
}

// A disposal that found no sandbox looks again if it was asked for once more: the sandbox may have appeared since.
func TestADisposalLooksAgain(t *testing.T) {
	s := newStation(t, 8)
	s.mu.Lock()
	s.disposing["x"] = false
	s.spawnDispose("x", canceledEnd("", ""))
	s.unlock()
	if !s.disposeAgain("x", false) || s.disposeAgain("x", false) || len(s.disposing) != 0 {
		t.Error("what was asked for under way is done once more, and once")
	}
}
