// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
)

// refreshes are the requests to workers.
type refreshes struct {
	mu  sync.Mutex
	all []string
}

func (a *refreshes) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.all
	a.all = nil
	return all
}

// refresher responds to refreshes like a worker, under a cluster name of its own choice.
func (a *refreshes) refresher(cluster string) func(context.Context, *federationv1.Dispatch) (*federationv1.Answer, error) {
	return func(_ context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
		r := d.GetRefresh()
		a.mu.Lock()
		defer a.mu.Unlock()
		a.all = append(a.all, fmt.Sprintf("%s %v %v %s", cluster, r.GetClusters(), r.GetMembers(), r.GetMaxUnavailable()))
		return &federationv1.Answer{Disposition: federationv1.Disposition_DONE, Result: &federationv1.Answer_Refreshed{
			Refreshed: &sandboxv1.RefreshEnvResponse{Members: []*sandboxv1.RefreshedMember{
				{ClusterId: "stranger", Name: "pool", Outcome: sandboxv1.RefreshedMember_REFRESHED},
			}},
		}}, nil
	}
}

func told(out *sandboxv1.RefreshEnvResponse, err error) string {
	if err != nil {
		return string(problem.FromError(err).Reason)
	}
	var parts []string
	for _, m := range out.GetMembers() {
		parts = append(parts, m.GetClusterId()+"/"+m.GetName())
	}
	for _, f := range out.GetFailures() {
		parts = append(parts, f.GetClusterId()+":"+f.GetReason())
	}
	return strings.Join(parts, " ")
}

// I7, I12: each cluster gets a request for its own members; a cluster that is away, or too old to have the call, is named and
// delays no other; the link names the cluster that responded.
func TestRefreshEnv(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 1, "north": 1, "old": 1, "west": 1})
		var asked refreshes
		f.Workers["east"].OnCall, f.Workers["west"].OnCall = asked.refresher("east"), asked.refresher("west")
		f.Workers["old"].OnCall = func(context.Context, *federationv1.Dispatch) (*federationv1.Answer, error) {
			return workertest.Failure(federationv1.Disposition_REFUSED, problem.Unimplemented), nil
		}
		f.Workers["north"].Connected = false
		request := &sandboxv1.RefreshEnvRequest{Namespace: "default", Name: "demo"}
		if got := told(f.hub.RefreshEnv(t.Context(), request)); got != "east/pool west/pool north:UNAVAILABLE old:UNIMPLEMENTED" {
			t.Errorf("all: %s", got)
		}
		asked.take()
		got := told(f.hub.RefreshEnv(t.Context(), &sandboxv1.RefreshEnvRequest{
			Namespace: "default", Name: "demo", Clusters: []string{"west", "west"}, Members: []string{"pool"}, MaxUnavailable: "0",
		}))
		if all := asked.take(); got != "west/pool" || len(all) != 1 || all[0] != "west [west] [pool] 0" {
			t.Errorf("west alone: %s, asked %s", got, all)
		}
		for want, request := range map[problem.Reason]*sandboxv1.RefreshEnvRequest{
			problem.NotFound:  {Namespace: "default", Name: "demo", Members: []string{"pool", "other"}},
			problem.Forbidden: {Namespace: "others", Name: "demo"},
			problem.Invalid:   {Namespace: "default", Name: "demo", MaxUnavailable: "lots"},
		} {
			ctx := principal.With(t.Context(), principal.Principal{Name: "key", AllTeams: true, Namespaces: []string{"default"}})
			if got := told(f.hub.RefreshEnv(ctx, request)); got != string(want) {
				t.Errorf("%v: %s, want %s", request, got, want)
			}
		}
		for _, request := range []*sandboxv1.RefreshEnvRequest{
			{Namespace: "default", Name: "none"}, {Namespace: "default", Name: "demo", Clusters: []string{"south"}},
		} {
			if _, err := f.hub.RefreshEnv(t.Context(), request); err == nil {
				t.Errorf("%v was carried out", request)
			}
		}
		if all := asked.take(); len(all) > 0 {
			t.Errorf("clusters were asked for what cannot be: %s", all)
		}
	})
}

// A caller refreshes the parts of an Env that it may see. A cluster that it may see for another Env is none of them.
func TestRefreshEnvIsOfTheCallersParts(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 1, "west": 1})
	var asked refreshes
	f.Workers["east"].OnCall, f.Workers["west"].OnCall = asked.refresher("east"), asked.refresher("west")
	bound := func(cluster string) context.Context {
		return principal.With(t.Context(), principal.Of(&access.Identity{Name: "bob"}, access.Permission{}, access.Grant{Scopes: []access.Scope{
			{AllNamespaces: true, AllTeams: true, Clusters: []string{cluster}},
			{Namespaces: []string{"elsewhere"}, AllTeams: true, Clusters: []string{"east"}},
		}}))
	}
	request := &sandboxv1.RefreshEnvRequest{Namespace: "default", Name: "demo", DryRun: true}
	got := told(f.hub.RefreshEnv(bound("west"), request))
	if all := asked.take(); got != "west/pool" || len(all) != 1 {
		t.Errorf("%s, asked %s", got, all)
	}
	_, err := f.hub.RefreshEnv(bound("north"), request)
	workertest.WantReason(t, err, problem.Forbidden)
	if text := err.Error(); !strings.Contains(text, "Env default/demo has parts in clusters that are not open to you") {
		t.Errorf("of an Env without a part of its own a caller is told %s", text)
	}
}
