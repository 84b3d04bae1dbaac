// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
)

// The call that waits for a sandbox and each later call with its key tell its end the same way: its record, or the error of a
// cause that only a person can cure, which explain tells as well.
func TestEachCallWithAKeyTellsTheSameEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		failure string
		want    problem.Reason // empty: the record
	}{
		"its node went":   {"NodeLost", ""},
		"its hook failed": {"PostStartHookFailed", problem.Misconfigured},
	} {
		bubble(t, name, func(t *testing.T) {
			f := newFederation(t, map[string]int32{"east": 5})
			var ended *sandboxv1.Sandbox
			f.Workers["east"].OnClaim = func(_ context.Context, c *federationv1.ClaimCall,
				carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
				ended = carryOut().GetSandbox()
				ended.Phase, ended.StopReason, ended.FailureReason = sandboxv1.Phase_ENDED, "Failed", tc.failure
				if e := outcome.Refusal(ended); e != nil { // as a worker does
					return &federationv1.Answer{Disposition: federationv1.Disposition_DONE, Error: calls.ErrorProto(e)}, nil
				}
				return workertest.Granted(ended), nil
			}
			check := func(call string) {
				t.Helper()
				got, err := f.hub.Create(t.Context(), workertest.Request("k"))
				switch {
				case tc.want != "":
					workertest.WantReason(t, err, tc.want)
					if problem.FromError(err).RetryAfter != 0 {
						t.Errorf("%s: advises a retry", call)
					}
				case err != nil || got.GetPhase() != sandboxv1.Phase_ENDED || got.GetId() != ended.GetId() || got.GetFailureReason() != tc.failure:
					t.Errorf("%s: %v, %v", call, got, err)
				}
			}
			check("the first call")
			batch := &federationv1.Ended{Sandboxes: []*federationv1.EndedSandbox{
				{Sandbox: ended, KeyHash: ledger.KeyHash("", "default", "k"), Attempt: 1},
			}}
			must.Succeed(t, f.hub.OnEnded(t.Context(), "east", batch))
			check("the second call")
			of := &sandboxv1.ExplainEnvRequest{Namespace: "default", Name: "demo", ClaimKey: "k"}
			byKey, err := f.hub.Explain(t.Context(), of)
			must.Succeed(t, err)
			byID, err := f.hub.Decision(t.Context(), ended)
			must.Succeed(t, err)
			for by, decision := range map[string]*sandboxv1.Decision{"key": byKey, "id": byID} {
				if got := decision.GetCandidates()[0].GetOutcome(); strings.Contains(got, tc.failure) != (tc.want != "") {
					t.Errorf("by its %s it is explained as %q", by, got)
				}
			}
		})
	}
}

func TestStateOfAClaim(t *testing.T) {
	now := time.Now()
	away, unknown := problem.New(problem.Unavailable, "not connected"), problem.New(problem.NotFound, "no such key")
	in := func(phase sandboxv1.Phase) *sandboxv1.Sandbox { return &sandboxv1.Sandbox{Phase: phase} }
	for name, tc := range map[string]struct {
		state ledger.State
		s     claimFacts
		want  sandboxv1.Claim_State
	}{
		"in a queue":                      {ledger.Pending, claimFacts{sandbox: in(sandboxv1.Phase_PENDING)}, sandboxv1.Claim_WAITING},
		"between clusters":                {ledger.Pending, claimFacts{err: unknown, flying: true}, sandboxv1.Claim_WAITING},
		"not sent yet":                    {ledger.Pending, claimFacts{err: unknown}, sandboxv1.Claim_WAITING},
		"its time is up":                  {ledger.Pending, claimFacts{err: unknown, now: now.Add(time.Hour)}, sandboxv1.Claim_EXPIRED},
		"refused everywhere":              {ledger.Refused, claimFacts{err: unknown}, sandboxv1.Claim_EXPIRED},
		"refused, and tried again":        {ledger.Refused, claimFacts{err: unknown, flying: true}, sandboxv1.Claim_WAITING},
		"its cluster is away":             {ledger.Pending, claimFacts{err: away}, sandboxv1.Claim_UNKNOWN},
		"returned, its cluster is away":   {ledger.Returned, claimFacts{err: away}, sandboxv1.Claim_UNKNOWN},
		"returned, its cluster forgotten": {ledger.Returned, claimFacts{err: away, forgotten: true}, sandboxv1.Claim_ENDED},
		"returned, and gone":              {ledger.Returned, claimFacts{err: unknown}, sandboxv1.Claim_ENDED},
		"being given its image":           {ledger.Returned, claimFacts{sandbox: in(sandboxv1.Phase_STARTING)}, sandboxv1.Claim_STARTING},
		"running":                         {ledger.Returned, claimFacts{sandbox: in(sandboxv1.Phase_RUNNING)}, sandboxv1.Claim_RUNNING},
		"being cleared":                   {ledger.Returned, claimFacts{sandbox: in(sandboxv1.Phase_STOPPING)}, sandboxv1.Claim_ENDED},
		"cancelled, or its sandbox ended": {ledger.Ended, claimFacts{}, sandboxv1.Claim_ENDED},
	} {
		tc.s.record = &ledger.Record{State: tc.state, Deadline: now.Add(time.Minute), Cluster: "east", Pool: "pool"}
		if tc.s.now.IsZero() {
			tc.s.now = now
		}
		if got := stateOf(tc.s); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// An Env without a member anywhere says which clusters it was meant for.
func TestNoMembersNamesTheClustersThatDoNotServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		for _, id := range []string{"east", "west"} {
			f.Report(id, &federationv1.EnvSegment{Key: &federationv1.EnvKey{Namespace: "default", Name: "demo"}, Named: "east,mars"})
		}
		err := f.wantReason(problem.Misconfigured, workertest.Request(""))
		const why = "no cluster has a pool of it; cluster mars, which the Env names, is not registered"
		if p := problem.FromError(err); !strings.Contains(p.Message, why) {
			t.Errorf("the caller is told %v", p)
		}
	})
}

// A claim that waits says where, since when and at which position.
func TestAWaitingClaimSaysWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		east := f.Workers["east"]
		east.OnClaim = hangs
		east.OnCall = func(_ context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
			if d.GetLookup() == nil {
				return nil, nil
			}
			return workertest.Granted(&sandboxv1.Sandbox{
				Id: "01hzzzzzzzzzzzzzzzzzzz0001-east", Pool: "pool", Phase: sandboxv1.Phase_PENDING,
				Waiting: &sandboxv1.Waiting{Position: 3, Claims: 7, Reason: "no Pod of the pool is idle"},
			}), nil
		}
		go func() { _, _ = f.hub.Create(t.Context(), workertest.Request("k")) }()
		synctest.Wait()
		claim, err := f.hub.GetClaim(t.Context(), &sandboxv1.GetClaimRequest{ClaimKey: "k"})
		if err != nil || claim.GetState() != sandboxv1.Claim_WAITING || claim.GetClusterId() != "east" || claim.GetPool() != "pool" ||
			claim.GetWaiting().GetPosition() != 3 || claim.GetSince() == nil || claim.GetMessage() == "" {
			t.Errorf("%v, %v", claim, err)
		}
		east.OnCall = func(context.Context, *federationv1.Dispatch) (*federationv1.Answer, error) {
			return nil, errors.New("silent")
		}
		claim, err = f.hub.GetClaim(t.Context(), &sandboxv1.GetClaimRequest{ClaimKey: "k"})
		if err != nil || claim.GetState() != sandboxv1.Claim_UNKNOWN || !strings.Contains(claim.GetMessage(), "east") {
			t.Errorf("with its cluster away: %v, %v", claim, err)
		}
	})
}

// What a cluster tells that only a person can cure reaches the caller and explain, and no retry is advised.
func TestAFaultOfTheEnvReachesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		const fault = `TemplateNotFound: pool: there is no SandboxTemplate "py"; create it`
		f.Report("east", &federationv1.EnvSegment{
			Key: &federationv1.EnvKey{Namespace: "default", Name: "demo"}, Fault: fault,
			Members: []*federationv1.MemberSegment{{Name: "pool", State: federationv1.MemberState_MISSING}},
		})
		err := f.wantReason(problem.Misconfigured, workertest.Request("k"))
		if p := problem.FromError(err); !strings.Contains(p.Message, fault) || p.RetryAfter != 0 {
			t.Errorf("the caller is told %v, retry after %s", p, p.RetryAfter)
		}
		decision, err := f.hub.Explain(t.Context(), &sandboxv1.ExplainEnvRequest{Namespace: "default", Name: "demo"})
		if err != nil || !strings.Contains(decision.GetMessage(), fault) || !strings.Contains(decision.GetCandidates()[0].GetMessage(), fault) {
			t.Errorf("explained as %v, %v", decision, err)
		}
		// A member that is missing for a moment is no fault.
		f.Report("east", &federationv1.EnvSegment{
			Key:     &federationv1.EnvKey{Namespace: "default", Name: "demo"},
			Members: []*federationv1.MemberSegment{{Name: "pool", State: federationv1.MemberState_MISSING}},
		})
		f.wantReason(problem.NoCapacity, workertest.Request(""))
	})
}
