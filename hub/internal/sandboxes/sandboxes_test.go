// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"strings"
	"testing"
	"testing/synctest"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
)

func TestGetAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		mine := principal.With(t.Context(), principal.Principal{Team: "t", User: "u", Namespaces: []string{"default"}})
		s, err := f.claims.Create(mine, workertest.Request(""))
		if err != nil || s.GetTeam() != "t" || s.GetUser() != "u" {
			t.Fatalf("%v %v: the caller's team and user are its sandbox's", s, err)
		}
		if got, err := f.hub.Get(mine, s.GetId()); err != nil || got.GetId() != s.GetId() {
			t.Fatalf("%v %v", got, err)
		}
		for name, p := range map[string]principal.Principal{
			"team": {Team: "s", AllNamespaces: true}, "user": {Team: "t", User: "v", AllNamespaces: true},
			"namespace": {AllTeams: true, Namespaces: []string{"prod"}}, "caller": {},
		} {
			ctx := principal.With(t.Context(), p)
			_, err := f.hub.Get(ctx, s.GetId())
			workertest.WantReason(t, err, problem.NotFound)
			_, err = f.hub.Release(ctx, s.GetId())
			workertest.WantReason(t, err, problem.NotFound)
			_, err = f.hub.Explain(ctx, &sandboxv1.ExplainEnvRequest{Namespace: "prod", Name: "demo", SandboxId: s.GetId()})
			if err == nil {
				t.Errorf("another %s reads the decision", name)
			}
		}
		if f.Workers["east"].Count() != 1 {
			t.Fatal("released by another caller")
		}
		for id, want := range map[string]problem.Reason{
			"nonsense": problem.Invalid, "01hzzzzzzzzzzzzzzzzzzz0001-mars": problem.NotFound, "01hzzzzzzzzzzzzzzzzzzz0007-east": problem.NotFound,
		} {
			_, err := f.hub.Get(t.Context(), id)
			workertest.WantReason(t, err, want)
		}
		if got, err := f.hub.Release(mine, s.GetId()); err != nil || got.GetPhase() != sandboxv1.Phase_STOPPING {
			t.Fatalf("%v %v", got, err)
		}
		f.Workers["east"].SetConnected(false)
		_, err = f.hub.Get(mine, s.GetId())
		workertest.WantReason(t, err, problem.Unavailable)
	})
}

// A team releases a sandbox whose cluster is away: the hub knows whose it is by what it last saw, and after a restart by the claim's
// record. Where it knows neither, the caller is told that nothing was recorded. Other callers learn nothing.
func TestAReleaseReachesAClusterThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		p := principal.Principal{Team: "t", User: "u", Namespaces: []string{"default"}}
		mine := principal.With(t.Context(), p)
		other := principal.With(t.Context(), principal.Principal{Team: "s", AllNamespaces: true})
		create := func(key string) string {
			s, err := f.claims.Create(mine, workertest.Request(key))
			must.Succeed(t, err)
			return s.GetId()
		}
		plain, keyed, forgotten, recorded := create(""), create("k"), create(""), create("after a restart")
		synctest.Wait()
		f.Workers["east"].SetConnected(false)
		released := func(id, want string) {
			t.Helper()
			_, err := f.hub.Release(other, id)
			if reason := reasonOf(err); reason != problem.NotFound && reason != problem.Unavailable ||
				strings.Contains(err.Error(), "release is recorded") || strings.Contains(err.Error(), "repeats") {
				t.Errorf("another team's release: %v", err)
			}
			_, err = f.hub.Release(mine, id)
			workertest.WantReason(t, err, problem.Unavailable)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the caller is told %v, want %q", err, want)
			}
		}
		released(plain, "the hub repeats the release until the cluster confirms it")
		released(keyed, "the release is recorded, and the sandbox ends when the cluster is back")
		released(keyed, "the release is recorded, and the sandbox ends when the cluster is back")
		f.restart()
		released(forgotten, "the release is not recorded: repeat it")
		released(recorded, "the release is recorded, and the sandbox ends when the cluster is back")
	})
}

func TestExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 0})
		explain := func(r *sandboxv1.ExplainEnvRequest) *sandboxv1.Decision {
			t.Helper()
			r.Namespace, r.Name = "default", "demo"
			d, err := f.hub.Explain(t.Context(), r)
			must.Succeed(t, err)
			return d
		}
		d := explain(&sandboxv1.ExplainEnvRequest{})
		if d.GetClusterId() != "east" || d.GetReason() != "BetterTier" || len(d.GetCandidates()) != 2 || d.GetCandidates()[0].GetRank() != 1 {
			t.Errorf("hypothetical: %v", d)
		}
		plain, keyed := f.create(workertest.Request("")), f.create(workertest.Request("k"))
		for name, r := range map[string]*sandboxv1.ExplainEnvRequest{
			"without a key":    {SandboxId: plain.GetId()},
			"with a key":       {SandboxId: keyed.GetId()},
			"by its claim key": {ClaimKey: "k"},
		} {
			if d := explain(r); d.GetClusterId() != "east" || d.GetCandidates()[0].GetOutcome() != "Granted" {
				t.Errorf("%s: %v", name, d)
			}
		}
		// Which candidates are shown depends on the Env that is named.
		for _, r := range []*sandboxv1.ExplainEnvRequest{
			{Namespace: "default", Name: "other", SandboxId: plain.GetId()}, {Namespace: "default", Name: "other", ClaimKey: "k"},
			{Namespace: "prod", Name: "demo", SandboxId: keyed.GetId()}, {Namespace: "prod", Name: "demo", ClaimKey: "k"},
		} {
			_, err := f.hub.Explain(t.Context(), r)
			workertest.WantReason(t, err, problem.NotFound)
		}
		f.restart()
		explain(&sandboxv1.ExplainEnvRequest{SandboxId: keyed.GetId()})
		_, err := f.hub.Explain(t.Context(), &sandboxv1.ExplainEnvRequest{Namespace: "default", Name: "demo", SandboxId: plain.GetId()})
		workertest.WantReason(t, err, problem.NotFound)
		_, err = f.hub.Explain(t.Context(), &sandboxv1.ExplainEnvRequest{Namespace: "default", Name: "dmeo"})
		workertest.WantReason(t, err, problem.NotFound)
	})
}
