// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
)

func TestChangesGoToTheSandboxsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		mine := principal.With(t.Context(), principal.Principal{Team: "t", User: "u", Namespaces: []string{"default"}})
		s, err := f.claims.Create(mine, workertest.Request("", workertest.Prefer("west")))
		must.Succeed(t, err)
		calls := map[string]func(ctx context.Context, id string) (*sandboxv1.Sandbox, error){
			"touch": f.hub.Touch, "pause": f.hub.Pause, "resume": f.hub.Resume,
			"update": func(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
				return f.hub.Update(ctx, &sandboxv1.UpdateSandboxRequest{Id: id, IdleTimeout: durationpb.New(time.Hour)})
			},
		}
		for name, call := range calls {
			for caller, p := range map[string]principal.Principal{"team": {Team: "s", AllNamespaces: true},
				"user": {Team: "t", User: "v", AllNamespaces: true}, "namespace": {AllTeams: true, Namespaces: []string{"prod"}}, "nothing": {}} {
				if _, err := call(principal.With(t.Context(), p), s.GetId()); err == nil || reasonOf(err) != problem.NotFound {
					t.Errorf("%s by another %s: %v", name, caller, err)
				}
			}
			for id, want := range map[string]problem.Reason{
				"nonsense": problem.Invalid, "01hzzzzzzzzzzzzzzzzzzz0001-mars": problem.NotFound, "01hzzzzzzzzzzzzzzzzzzz0007-east": problem.NotFound,
			} {
				if _, err := call(t.Context(), id); err == nil || reasonOf(err) != want {
					t.Errorf("%s of %s: %v, want %s", name, id, err, want)
				}
			}
		}
		if before := f.Workers["west"].Live[s.GetId()]; before.GetIdleTimeout() != nil || before.GetLastActiveAt() != nil ||
			before.GetPause() != nil {
			t.Fatalf("another caller changed it: %v", before)
		}
		got, err := calls["touch"](mine, s.GetId())
		if err != nil || got.GetClusterId() != "west" || got.GetLastActiveAt() == nil {
			t.Errorf("touched: %v, %v", got, err)
		}
		got, err = calls["update"](mine, s.GetId())
		if err != nil || got.GetIdleTimeout().AsDuration() != time.Hour {
			t.Errorf("changed: %v, %v", got, err)
		}
		got, err = calls["pause"](mine, s.GetId())
		if err != nil || got.GetPause().GetState() != sandboxv1.Pause_PAUSED {
			t.Errorf("paused: %v, %v", got, err)
		}
		got, err = calls["resume"](mine, s.GetId())
		if err != nil || got.GetPause() != nil {
			t.Errorf("resumed: %v, %v", got, err)
		}
		f.Workers["west"].SetConnected(false)
		for name, call := range calls {
			if _, err := call(t.Context(), s.GetId()); err == nil || reasonOf(err) != problem.Unavailable || problem.FromError(err).RetryAfter == 0 {
				t.Errorf("%s while its cluster is away: %v", name, err)
			}
		}
	})
}

// A sandbox whose record the hub has returns that, wherever its cluster is.
func TestAnEndedSandboxIsTouchedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		s := f.create(workertest.Request("k"))
		synctest.Wait()
		must.Succeed(t, f.claims.OnEnded(t.Context(), "east", workertest.Ended(s, "k", 1)))
		f.Workers["east"].OnCall = func(_ context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
			t.Errorf("asked for %v", d)
			return nil, workertest.ErrBroken
		}
		for range 2 {
			if got, err := f.hub.Touch(t.Context(), s.GetId()); err != nil || got.GetPhase() != sandboxv1.Phase_ENDED {
				t.Errorf("touched: %v, %v", got, err)
			}
			if got, err := f.hub.Pause(t.Context(), s.GetId()); err != nil || got.GetPhase() != sandboxv1.Phase_ENDED {
				t.Errorf("paused: %v, %v", got, err)
			}
			if got, err := f.hub.Resume(t.Context(), s.GetId()); err != nil || got.GetPhase() != sandboxv1.Phase_ENDED {
				t.Errorf("resumed: %v, %v", got, err)
			}
			got, err := f.hub.Update(t.Context(), &sandboxv1.UpdateSandboxRequest{Id: s.GetId(), MaxLifetime: durationpb.New(0)})
			if err != nil || got.GetPhase() != sandboxv1.Phase_ENDED {
				t.Errorf("changed: %v, %v", got, err)
			}
		}
	})
}
