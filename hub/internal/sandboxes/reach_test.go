// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// asked notes which clusters got a request for a tunnel.
type asked []string

var errNoTunnel = errors.New("no tunnel here")

func (a *asked) OpenTunnel(_ context.Context, cluster string, _ reach.Holder, _ func(context.Context, string) error) (reach.Tunnel, error) {
	*a = append(*a, cluster)
	return nil, errNoTunnel
}

func TestOnlyTheOwnerReachesASandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		mine := principal.With(t.Context(), principal.Principal{Team: "t", User: "u", Namespaces: []string{"default"}})
		s, err := f.claims.Create(mine, workertest.Request(""))
		must.Succeed(t, err)
		tunnels := &asked{}
		f.hub.tunnels = tunnels
		call := &federationv1.ReachCall{What: &federationv1.ReachCall_Exec{Exec: &federationv1.ExecReach{Command: []string{"true"}}}}
		for _, p := range []principal.Principal{{Team: "s", AllNamespaces: true}, {Team: "t", User: "v", AllNamespaces: true},
			{AllTeams: true, Namespaces: []string{"prod"}}, {}} {
			_, err := f.hub.Open(principal.With(t.Context(), p), s.GetId(), call)
			workertest.WantReason(t, err, problem.NotFound)
		}
		if len(*tunnels) > 0 {
			t.Fatalf("for strangers, %v were asked", *tunnels)
		}
		if _, err := f.hub.Open(mine, s.GetId(), call); !errors.Is(err, errNoTunnel) || len(*tunnels) != 1 || (*tunnels)[0] != "east" {
			t.Errorf("for its owner %v were asked: %v", *tunnels, err)
		}
		if call.GetSandboxId() != "" || call.GetToken() != "" {
			t.Errorf("the caller's request was changed: %v", call)
		}
	})
}

// What cannot be reached because it has ended says why it has.
func TestAnEndedSandboxSaysWhyItCannotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		s, err := f.claims.Create(t.Context(), workertest.Request("k"))
		must.Succeed(t, err)
		synctest.Wait()
		end := workertest.Ended(s, "k", 1)
		end.GetSandboxes()[0].Sandbox.FailureReason, end.GetSandboxes()[0].Sandbox.FailureMessage = "IdleTimeout", "no activity for 5s"
		must.Succeed(t, f.claims.OnEnded(t.Context(), "east", end))
		_, err = f.hub.Open(t.Context(), s.GetId(), &federationv1.ReachCall{})
		if want := "has ended: Completed: IdleTimeout: no activity for 5s"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	})
}

// opening counts the tunnels that are being opened, and opens none until it is closed.
type opening struct {
	now  atomic.Int32
	done chan struct{}
}

func (o *opening) OpenTunnel(context.Context, string, reach.Holder, func(context.Context, string) error) (reach.Tunnel, error) {
	o.now.Add(1)
	<-o.done
	return nil, errNoTunnel
}

// I14: conversations that an account opens all at once are opened few at a time, and delay no other account's.
func TestI14AnAccountOpensFewConversationsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		of := func(team string) context.Context {
			return principal.With(t.Context(), principal.Principal{Team: team, AllNamespaces: true})
		}
		ids := map[string]string{}
		for _, team := range []string{"crowd", "other"} {
			s, err := f.claims.Create(of(team), workertest.Request(""))
			must.Succeed(t, err)
			ids[team] = s.GetId()
		}
		tunnels := &opening{done: make(chan struct{})}
		f.hub.tunnels = tunnels
		var all sync.WaitGroup
		open := func(team string) {
			all.Go(func() { _, _ = f.hub.Open(of(team), ids[team], &federationv1.ReachCall{}) })
		}
		for range 10 * openingsAtOnce {
			open("crowd")
		}
		synctest.Wait()
		if n := tunnels.now.Load(); n != openingsAtOnce {
			t.Errorf("%d are being opened, want %d", n, openingsAtOnce)
		}
		open("other")
		synctest.Wait()
		if n := tunnels.now.Load(); n != openingsAtOnce+1 {
			t.Errorf("with another account's %d are being opened, want %d", n, openingsAtOnce+1)
		}
		close(tunnels.done)
		all.Wait()
	})
}
