// SPDX-License-Identifier: Apache-2.0

package podtunnel_test

import (
	"io"
	"net"
	"strconv"
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/claim"
)

// A sandbox whose caller never gets it ends by its first-activity timeout, so what the hub does for that caller must not count.
func TestPreparingIsNoActivity(t *testing.T) {
	w := newWorld(t)
	number, err := strconv.Atoi(listen(t, func(conn net.Conn) {
		_, _ = io.Copy(conn, conn)
		_ = conn.Close()
	}))
	w.Must(err)
	sandbox := w.claim()
	for _, preparing := range []bool{true, false} {
		what := &federationv1.ReachCall{
			Preparing: preparing, What: &federationv1.ReachCall_Port{Port: &federationv1.PortReach{Port: int32(number)}},
		}
		tunnel, err := w.service.Open(t.Context(), sandbox.GetId(), what)
		w.Must(err)
		w.Must(tunnel.Send([]byte("x")))
		if message, err := tunnel.Recv(); err != nil || string(message) != "x" {
			t.Errorf("received %q, %v", message, err)
		}
		tunnel.Close(nil)
		active, err := w.activity.GetLastActive(t.Context())
		w.Must(err)
		if _, noted := active[sandbox.GetId()]; noted == preparing {
			t.Errorf("preparing %t: activity is noted: %t", preparing, noted)
		}
		got, err := w.claims.Get(t.Context(), sandbox.GetId())
		w.Must(err)
		if preparing && got.GetLastActiveAt().AsTime().After(sandbox.GetLastActiveAt().AsTime()) {
			t.Errorf("the record is of activity at %s", got.GetLastActiveAt().AsTime())
		}
	}
}

// A sandbox that has no environment yet is starting for all but the caller that prepares it, until that says that it is prepared.
func TestNoCallerReachesASandboxThatIsBeingPrepared(t *testing.T) {
	w := newWorld(t)
	number, err := strconv.Atoi(listen(t, func(conn net.Conn) { _ = conn.Close() }))
	w.Must(err)
	var sandbox *sandboxv1.Sandbox
	w.Eventually("a sandbox", func() (err error) {
		r := &sandboxv1.CreateSandboxRequest{Namespace: w.Namespace, Team: "red"}
		sandbox, err = w.claims.Create(t.Context(), claim.Claim{Request: r, Pool: w.Key("p"), Prepares: true})
		return err
	})
	open := func(what *federationv1.ReachCall) error {
		tunnel, err := w.service.Open(t.Context(), sandbox.GetId(), what)
		if err == nil {
			tunnel.Close(nil)
		}
		return err
	}
	port := func(preparing bool) *federationv1.ReachCall {
		return &federationv1.ReachCall{
			Preparing: preparing, What: &federationv1.ReachCall_Port{Port: &federationv1.PortReach{Port: int32(number)}},
		}
	}
	seen := func(want bool) {
		t.Helper()
		got, err := w.claims.Get(t.Context(), sandbox.GetId())
		w.Must(err)
		if outcome.IsPreparing(got) != want {
			t.Errorf("a caller sees %s, %s; being prepared: %t", got.GetPhase(), got.GetStatusDetail().GetReason(), want)
		}
	}
	prepared := &federationv1.ReachCall{
		Preparing: true, What: &federationv1.ReachCall_Prepared{Prepared: &federationv1.PreparedReach{}},
	}
	seen(true)
	if err := open(port(false)); problem.FromError(err).Reason != problem.Unavailable {
		t.Errorf("a caller reaches it: %v", err)
	}
	w.Must(open(port(true)))
	for range 2 { // the second changes nothing
		w.Must(open(prepared))
		seen(false)
		w.Must(open(port(false)))
	}
	w.release(sandbox.GetId())
	if err := open(prepared); problem.FromError(err).Reason != problem.NotFound {
		t.Errorf("an ended sandbox is prepared: %v", err)
	}
}
