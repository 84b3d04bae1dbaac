// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"slices"
	"strings"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/problem"
)

// beyonds are scopes that leave out the Env default/demo, or its callers.
var beyonds = map[string]*hubstate.Scope{
	"namespaces": {Namespaces: []string{"other"}}, "teams": {Teams: []string{"red"}}, "envs": {Envs: []string{"default/other"}},
}

func (f *federation) setScope(cluster string, scope *hubstate.Scope) {
	f.t.Helper()
	_, err := f.Fleet.SetScope(f.t.Context(), cluster, scope)
	must.Succeed(f.t, err)
}

// TestI15ARecoveryBelievesNoClusterBeyondItsScope: a key, its sandbox and its end, also with a proof that was given when the cluster still
// might serve it. No other cluster gets a claim for the key either (I2), until the cluster may serve it again.
func TestI15ARecoveryBelievesNoClusterBeyondItsScope(t *testing.T) {
	for by, scope := range beyonds {
		for what, tell := range tellings {
			f := newProvingFederation(t, map[string]int32{"east": 3, "west": 3})
			k := f.create(workertest.Request("k", workertest.Prefer("east")))
			asked := len(f.Workers["east"].Claims())
			held := f.holder("east", "k")
			f.loseLedger()
			f.setScope("east", scope)
			delete(f.Workers["east"].Keys, held.GetKeyHash()) // it names it once
			tell(f, "east", held)
			f.tell("west")
			for range 2 {
				f.wantReason(problem.OutcomeUnknown, workertest.Request("k", workertest.Prefer("west")))
			}
			claim, err := f.hub.GetClaim(t.Context(), &sandboxv1.GetClaimRequest{ClaimKey: "k"})
			if err != nil || claim.GetSandbox() != nil {
				t.Errorf("I15: %s beyond its %s: the claim is %v: %v", what, by, claim, err)
			}
			if n := len(slices.Concat(f.Workers["east"].Claims(), f.Workers["west"].Claims())); n != asked {
				t.Errorf("I2: %s beyond its %s: %d claims were sent", what, by, n-asked)
			}
			if what == "a Pod" { // what it was sent counts again
				f.Workers["east"].Keys[held.GetKeyHash()] = workertest.Holding{
					Attempt: held.GetAttempt(), ID: held.GetSandboxId(), Proof: held.GetProof(),
				}
				f.setScope("east", nil)
				f.wantAnswer("k", k.GetId())
			}
		}
	}
}

// A cancel ends what a cluster holds beyond its scope, and what the key returns then is its end, on the hub's word. The entry of a sandbox
// that the key then has no more expires (I10).
func TestACancelEndsAKeyBeyondItsClustersScope(t *testing.T) {
	for _, ended := range []bool{false, true} {
		f := newProvingFederation(t, map[string]int32{"east": 3, "west": 3})
		f.create(workertest.Request("k", workertest.Prefer("east")))
		held := f.holder("east", "k")
		record := workertest.Ended(f.Workers["east"].Live[held.GetSandboxId()], "k", held.GetAttempt())
		record.Sandboxes[0].Proof = held.GetProof()
		f.loseLedger()
		f.setScope("east", beyonds["namespaces"])
		if ended {
			must.Succeed(t, f.hub.OnEnded(t.Context(), "east", record))
		}
		f.tell("east")
		f.tell("west")
		claim, err := f.hub.CancelClaim(t.Context(), &sandboxv1.CancelClaimRequest{ClaimKey: "k"})
		if err != nil || claim.GetSandbox().GetPodUid() != "" || f.record("k").State != ledger.Ended {
			t.Errorf("ended before %t: the cancel returns %v: %v", ended, claim, err)
		}
		if expires := strings.Contains(f.stored(), "/"+ledger.IDPrefix+held.GetSandboxId()); expires != ended {
			t.Errorf("ended before %t: the sandbox's entry expires by itself: %t; the store has %s", ended, expires, f.stored())
		}
		must.Succeed(t, f.hub.OnEnded(t.Context(), "east", record))
		if got := f.create(workertest.Request("k", workertest.Prefer("west"))); got.GetPhase() != sandboxv1.Phase_ENDED {
			t.Errorf("ended before %t: after the cancel, the key has %v", ended, got)
		}
	}
}
