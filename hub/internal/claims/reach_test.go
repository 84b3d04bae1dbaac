// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// asked notes which clusters were asked for a tunnel.
type asked []string

var errNoTunnel = errors.New("no tunnel here")

func (a *asked) Open(_ context.Context, cluster string, _ func(context.Context, string) error) (reach.Tunnel, error) {
	*a = append(*a, cluster)
	return nil, errNoTunnel
}

func TestOnlyTheOwnerReachesASandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		mine := WithPrincipal(t.Context(), Principal{Team: "t", User: "u", Namespaces: []string{"default"}})
		s, err := f.hub.Create(mine, request(""))
		if err != nil {
			t.Fatal(err)
		}
		tunnels := &asked{}
		call := &federationv1.ReachCall{What: &federationv1.ReachCall_Exec{Exec: &federationv1.ExecReach{Command: []string{"true"}}}}
		for _, p := range []Principal{{Team: "s"}, {Team: "t", User: "v"}, {Namespaces: []string{"prod"}}} {
			_, err := f.hub.Reach(WithPrincipal(t.Context(), p), tunnels, s.GetId(), call)
			wantReason(t, err, problem.NotFound)
		}
		if len(*tunnels) > 0 {
			t.Fatalf("for strangers, %v were asked", *tunnels)
		}
		if _, err := f.hub.Reach(mine, tunnels, s.GetId(), call); !errors.Is(err, errNoTunnel) || len(*tunnels) != 1 || (*tunnels)[0] != "east" {
			t.Errorf("for its owner %v were asked: %v", *tunnels, err)
		}
		if call.GetSandboxId() != "" || call.GetToken() != "" {
			t.Errorf("the caller's request was changed: %v", call)
		}
	})
}
