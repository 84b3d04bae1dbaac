// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/inventory/inventorytest"
	"navix.sh/atoll/worker/internal/sandbox"
)

// I2: after an unclear try of a write, only the Pod shows its outcome. A refusal would send the claim to another cluster, and
// leave a second sandbox behind.
func TestI2AnUnclearWriteIsNotRefused(t *testing.T) {
	for name, tc := range map[string]scriptedWrite{
		"denied at once": {func(p *inventorytest.API, _ int, _ func() (*http.Response, error)) (*http.Response, error) {
			return p.Status(http.StatusForbidden, "")
		}, federationv1.Disposition_REFUSED, 1},
		"its answer lost, then denied": {func(p *inventorytest.API, n int, carry func() (*http.Response, error)) (*http.Response, error) {
			if n == 1 {
				_, _ = carry()
				return p.Lost()
			}
			return p.Status(http.StatusForbidden, "")
		}, federationv1.Disposition_UNCLEAR, 1 + maxUnclear},
		"its answer lost, then not known, then heard": {func(p *inventorytest.API, n int, carry func() (*http.Response, error)) (*http.Response,
			error) {
			switch n {
			case 1:
				_, _ = carry()
				return p.Lost()
			case 2:
				return p.Status(http.StatusUnauthorized, "")
			}
			return carry()
		}, federationv1.Disposition_DONE, 3},
		"lost on the way, then too many": {func(p *inventorytest.API, n int, _ func() (*http.Response, error)) (*http.Response, error) {
			if n == 1 {
				return p.Lost()
			}
			return p.Status(http.StatusTooManyRequests, "")
		}, federationv1.Disposition_UNCLEAR, 1 + maxUnclear},
		"too many for a while": {func(p *inventorytest.API, n int, carry func() (*http.Response, error)) (*http.Response, error) {
			if n < 3 {
				return p.Status(http.StatusTooManyRequests, "1")
			}
			return carry()
		}, federationv1.Disposition_DONE, 3},
		"too many": {func(p *inventorytest.API, _ int, _ func() (*http.Response, error)) (*http.Response, error) {
			return p.Status(http.StatusTooManyRequests, "1")
		}, federationv1.Disposition_REFUSED, 1 + maxUnclear},
		// A client that retries when a server asks for it hides that the first try may have happened.
		"carried out and said to be late, then denied": {func(p *inventorytest.API, n int, carry func() (*http.Response, error)) (*http.Response,
			error) {
			if n == 1 {
				_, _ = carry()
				return p.Status(http.StatusInternalServerError, "1")
			}
			return p.Status(http.StatusForbidden, "")
		}, federationv1.Disposition_UNCLEAR, 1 + maxUnclear},
	} {
		for _, key := range []string{"", "k"} {
			t.Run(name+", key "+key, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testUnclearWrite(t, key, tc) })
			})
		}
	}
}

// scriptedWrite is the outcome of the n-th patch of a claim, and the expected result of the claim after how many.
type scriptedWrite struct {
	respond func(p *inventorytest.API, n int, carry func() (*http.Response, error)) (*http.Response, error)
	want    federationv1.Disposition
	tries   int
}

func testUnclearWrite(t *testing.T, key string, tc scriptedWrite) {
	s := newStation(t, 8)
	pod := s.IdlePod("a")
	p := s.API
	p.Put(pod)
	p.Respond(func(n int, carry func() (*http.Response, error)) (*http.Response, error) {
		if n == 0 {
			return carry()
		}
		return tc.respond(p, n, carry)
	})
	s.See(pod)
	c := Claim{Request: &sandboxv1.CreateSandboxRequest{Team: "red", User: "ann", Wait: sandboxv1.CreateSandboxRequest_ASSIGNED},
		Pool: inventorytest.Pool}
	if key != "" {
		c.Request.ClaimKey, c.KeyHash, c.Attempt = key, sandbox.KeyHash("red", "default", key), 1
	}
	got, err := s.Create(t.Context(), c)
	if d := disposition.Of(err); d != tc.want || p.Patches() != tc.tries {
		t.Errorf("%s after %d tries (%v), want %s after %d", d, p.Patches(), err, tc.want, tc.tries)
	}
	if carrier := sandbox.Read(p.Pod("a")).ID; err == nil && carrier != got.GetId() {
		t.Errorf("answered %s, the Pod carries %q", got.GetId(), carrier)
	}
	if tc.want == federationv1.Disposition_REFUSED {
		return
	}
	// The Pod's event shows the outcome: with a key it is the result, without one the sandbox ends.
	p.Respond(nil)
	s.See(p.Pod("a"))
	time.Sleep(time.Second)
	synctest.Wait()
	after := sandbox.Read(p.Pod("a"))
	if key == "" {
		if err != nil && after.ID != "" && after.Phase.Live() {
			t.Errorf("the sandbox that no caller was given stays: %+v", after)
		}
		return
	}
	again, err := s.Create(t.Context(), c)
	if err != nil || again.GetId() != sandbox.Read(p.Pod("a")).ID || got != nil && again.GetId() != got.GetId() {
		t.Errorf("I2: asked again, the key is answered %v, %v", again, err)
	}
}

// A claim without a key whose write has an unknown outcome leaves no sandbox, even if the Pod's event came before, and none follows.
func TestAnUnclearWriteThatWasSeenLeavesNoSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		s.Appear(s.IdlePod("a"))
		s.API.Respond(func(n int, carry func() (*http.Response, error)) (*http.Response, error) {
			if n != 1 {
				return carry()
			}
			_, _ = carry()
			s.Update(func(st *inventory.State) { st.SeeEvent(s.API.Pod("a")) })
			return nil, context.DeadlineExceeded
		})
		got, err := s.Create(t.Context(), Claim{Pool: inventorytest.Pool, Request: &sandboxv1.CreateSandboxRequest{
			Team: "red", User: "ann", Wait: sandboxv1.CreateSandboxRequest_ASSIGNED,
		}})
		if disposition.Of(err) != federationv1.Disposition_UNCLEAR {
			t.Fatalf("returned %v, %v", got, err)
		}
		synctest.Wait()
		if after := sandbox.Read(s.API.Pod("a")); after.ID == "" || after.Phase.Live() {
			t.Errorf("the sandbox that no caller was given stays: %+v", after)
		}
	})
}

// I1, I13: a write whose version was exceeded before it was sent reached an etcd that was restored from a backup. Its Pod may run
// a sandbox that this etcd has lost: it is not returned, not by the next leader either, and serving stops.
func TestI1AWriteToARestoredEtcdIsNotReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		newest, idle := s.ClaimedPod("newest", "01hx-east"), s.IdlePod("a")
		newest.ResourceVersion = "2000" // the next version is 1001
		s.Appear(newest, idle)
		got, err := s.Create(t.Context(), s.keyed("k", 1))
		if disposition.Of(err) != federationv1.Disposition_UNCLEAR || s.Serving() {
			t.Errorf("returned %v, %v; serving on: %t", got, err, s.Serving())
		}
		synctest.Wait()
		if state := sandbox.Read(s.API.Pod("a")); state.ID == "" || state.Phase.Live() {
			t.Errorf("the next leader can return it: %+v", state)
		}
	})
}
