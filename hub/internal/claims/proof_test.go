// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
)

// newProvingFederation has a new hub: all that it sends has a proof.
func newProvingFederation(t *testing.T, idle map[string]int32) *federation {
	f := newFederation(t, idle)
	f.hub.Close()
	f.reopen()
	return f
}

// holder is a key as its cluster names it.
func (f *federation) holder(cluster, key string) *federationv1.KeyHolder {
	hash := ledger.KeyHash("", "default", key)
	h := f.Workers[cluster].Keys[hash]
	return &federationv1.KeyHolder{KeyHash: hash, Attempt: h.Attempt, SandboxId: h.ID, PodUid: "pod", Proof: h.Proof}
}

// TestI2HonestClustersRecoverTheirKeys by the proofs that came with their claims: live, ended, by terminal record and under way.
func TestI2HonestClustersRecoverTheirKeys(t *testing.T) {
	f := newProvingFederation(t, map[string]int32{"east": 9, "west": 9})
	ids := map[string]string{}
	for _, key := range []string{"live", "ended", "told", "under-way"} {
		ids[key] = f.create(workertest.Request(key, workertest.Prefer("east"))).GetId()
	}
	ended, told, underWay := f.holder("east", "ended"), f.holder("east", "told"), f.holder("east", "under-way")
	ended.PodUid, ended.Ended, underWay.PodUid = "", true, ""
	record := workertest.Ended(f.Workers["east"].Live[ids["told"]], "told", told.GetAttempt())
	record.Sandboxes[0].Proof = told.GetProof()
	f.Workers["east"].Live[ids["ended"]].Phase = sandboxv1.Phase_ENDED
	f.loseLedger()
	must.Succeed(t, f.hub.OnEnded(t.Context(), "east", record))
	must.Succeed(t, f.hub.takeIndex(t.Context(), "east", []*federationv1.KeyHolder{f.holder("east", "live"), ended, underWay}, true))
	f.tell("west")
	for key, id := range ids {
		f.wantAnswer(key, id)
	}
	if got := testutil.ToFloat64(f.hub.metrics.unproven.WithLabelValues("east")); got != 0 {
		t.Errorf("%v keys count as unproven", got)
	}
}

// tellings are the ways in which a cluster tells of a key.
var tellings = map[string]func(f *federation, cluster string, h *federationv1.KeyHolder){
	"a Pod":           func(f *federation, cluster string, h *federationv1.KeyHolder) { f.tell(cluster, h) },
	"claim under way": func(f *federation, cluster string, h *federationv1.KeyHolder) { h.PodUid = ""; f.tell(cluster, h) },
	"an end": func(f *federation, cluster string, h *federationv1.KeyHolder) {
		h.PodUid, h.Ended = "", true
		f.tell(cluster, h)
	},
	"a terminal record": func(f *federation, cluster string, h *federationv1.KeyHolder) {
		told := workertest.Ended(f.Workers[cluster].Live[h.GetSandboxId()], "k", h.GetAttempt())
		told.Sandboxes[0].KeyHash, told.Sandboxes[0].Proof = h.GetKeyHash(), h.GetProof()
		must.Succeed(f.t, f.hub.OnEnded(f.t.Context(), cluster, told))
		f.tell(cluster)
	},
}

// TestI15ALyingClusterPlantsNothingDuringARecovery: neither with another key's proof, nor another cluster's, nor one that it made
// up. What it was sent counts.
func TestI15ALyingClusterPlantsNothingDuringARecovery(t *testing.T) {
	for name, tell := range tellings {
		for _, key := range []string{"k", "new"} {
			for _, of := range []string{"other key", "other cluster", "other attempt", "made up"} {
				f := newProvingFederation(t, map[string]int32{"evil": 3, "west": 3})
				k := f.create(workertest.Request("k", workertest.Prefer("west")))
				mine := f.create(workertest.Request("mine", workertest.Prefer("evil")))
				sent, fromWest := f.holder("evil", "mine"), f.holder("west", "k")
				f.loseLedger()
				lie := f.planted("evil", key, sent.GetAttempt())
				delete(f.Workers["evil"].Keys, lie.GetKeyHash()) // it names it once
				switch of {
				case "other key":
					lie.Proof = sent.GetProof()
				case "other cluster":
					lie.Proof = fromWest.GetProof()
				case "other attempt":
					lie.Attempt, lie.Proof = lie.Attempt+1, fromWest.GetProof()
				case "made up":
					lie.Proof = sent.GetProof()[:9] + "AAAAAAAAAAAAAAAAAAAAAA"
				}
				tell(f, "evil", lie)
				f.tell("west")
				got := f.create(workertest.Request(key, workertest.Prefer("west")))
				if got.GetClusterId() != "west" || got.GetPhase() != sandboxv1.Phase_RUNNING || key == "k" && got.GetId() != k.GetId() {
					t.Errorf("I15: %s with the proof of: %s: key %s is answered %v", name, of, key, got)
				}
				f.wantAnswer("mine", mine.GetId())
			}
		}
	}
}

// TestI15AKeyWithoutAProofIsNeitherReturnedNorClaimed: a cluster that lies gets no claim by it, and an honest one of before gets
// no second sandbox (I2).
func TestI15AKeyWithoutAProofIsNeitherReturnedNorClaimed(t *testing.T) {
	f := newProvingFederation(t, map[string]int32{"east": 3, "west": 3})
	f.hold("east", "old", 1)
	f.loseLedger()
	f.tell("east")
	f.tell("west")
	for range 2 {
		f.wantReason(problem.OutcomeUnknown, workertest.Request("old", workertest.Prefer("west")))
	}
	claim, err := f.hub.GetClaim(t.Context(), &sandboxv1.GetClaimRequest{ClaimKey: "old"})
	if err != nil || claim.GetState() != sandboxv1.Claim_UNKNOWN || claim.GetSandbox() != nil {
		t.Errorf("the claim is %v: %v", claim, err)
	}
	if asked := slices.Concat(f.Workers["east"].Claims(), f.Workers["west"].Claims()); len(asked) > 0 || f.Workers["east"].Count() != 1 {
		t.Errorf("I2: claimed %v; east has %d Pods", asked, f.Workers["east"].Count())
	}
	if got := testutil.ToFloat64(f.hub.metrics.unproven.WithLabelValues("east")); got != 1 {
		t.Errorf("%v keys count as unproven", got)
	}
	// Its end does not stand for the key either, and a cancel ends it.
	told := workertest.Ended(f.Workers["east"].Live[f.holder("east", "old").GetSandboxId()], "old", 1)
	must.Succeed(t, f.hub.OnEnded(t.Context(), "east", told))
	if r := f.record("old"); r.State != ledger.Unproven {
		t.Errorf("I15: after a terminal record it is %s", r.State)
	}
	_, err = f.hub.CancelClaim(t.Context(), &sandboxv1.CancelClaimRequest{ClaimKey: "old"})
	if must.Succeed(t, err); f.Workers["east"].Canceled != 1 || f.record("old").State != ledger.Ended {
		t.Errorf("east was sent %d cancels, the record is %s", f.Workers["east"].Canceled, f.record("old").State)
	}
}

// TestI15AProofOutweighsAKeyWithout, whichever cluster is heard first and whatever attempt the other one names.
func TestI15AProofOutweighsAKeyWithout(t *testing.T) {
	for _, order := range [][]string{{"evil", "west"}, {"west", "evil"}} {
		f := newProvingFederation(t, map[string]int32{"evil": 3, "west": 3})
		k := f.create(workertest.Request("k", workertest.Prefer("west")))
		f.loseLedger()
		f.planted("evil", "k", 7)
		for _, cluster := range order {
			f.tell(cluster)
		}
		f.wantAnswer("k", k.GetId())
		f.hub.Close() // waits for background work
		if f.Workers["west"].Count() != 1 || f.Workers["west"].Canceled > 0 {
			t.Errorf("I15: heard %v: west has %d Pods", order, f.Workers["west"].Count())
		}
	}
}

// TestI15ARestoredKeyIsNotMovedWithoutAProof: the key of a restored record whose cluster does not hold it waits.
func TestI15ARestoredKeyIsNotMovedWithoutAProof(t *testing.T) {
	f := newProvingFederation(t, map[string]int32{"evil": 3, "west": 3})
	f.leave("west", workertest.Request("k", workertest.Prefer("west")), false)
	f.restoreLedger()
	f.Workers["west"].OnClaim = nil
	f.tell("evil", f.planted("evil", "k", 2))
	f.tell("west")
	f.wantReason(problem.OutcomeUnknown, workertest.Request("k", workertest.Prefer("west")))
	// Forgetting the cluster frees the key.
	f.forget("evil")
	if got := f.create(workertest.Request("k", workertest.Prefer("west"))); got.GetClusterId() != "west" {
		t.Errorf("answered %v", got)
	}
}

func TestBearingOfProofs(t *testing.T) {
	missing := sender{cluster: "east", missing: true, epoch: 1, lastLost: recovery.FirstAttempt(9)}
	unprovenRecord := &ledger.Record{Cluster: "west", State: ledger.Unproven, Adopted: true, Attempt: 5}
	adopted := &ledger.Record{Cluster: "west", State: ledger.Returned, Adopted: true, Attempt: 1}
	restored := &ledger.Record{Cluster: "west", State: ledger.Pending, Attempt: 1}
	for _, tc := range []struct {
		r     *ledger.Record
		proof recovery.Verdict
		want  bearing
	}{
		{nil, recovery.Proven, unknownKey},
		{nil, recovery.Grandfathered, unknownKey},
		{nil, recovery.Unproven, unproven},
		{nil, recovery.Forged, unsent},
		{unprovenRecord, recovery.Proven, newer},
		{unprovenRecord, recovery.Unproven, beside},
		{unprovenRecord, recovery.Forged, unsent},
		{adopted, recovery.Proven, newer},
		{adopted, recovery.Unproven, beside},
		{adopted, recovery.Forged, unsent},
		{restored, recovery.Proven, newer},
		{restored, recovery.Unproven, unproven},
		{restored, recovery.Forged, unsent},
	} {
		if got := bearingOf(tc.r, missing, 3, tc.proof); got != tc.want {
			t.Errorf("%+v, %s: %s, want %s", tc.r, tc.proof, got, tc.want)
		}
	}
	heard := sender{cluster: "west", epoch: 1, lastLost: recovery.FirstAttempt(1) - 1}
	if got := bearingOf(unprovenRecord, heard, 5, recovery.Unproven); got != beside {
		t.Errorf("its own key, heard again: %s", got)
	}
}
