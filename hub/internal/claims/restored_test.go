// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"strings"
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/store"
)

// TestSandboxesThatARestoredEtcdLostAreRecordedAsEnded, and no others.
func TestSandboxesThatARestoredEtcdLostAreRecordedAsEnded(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 5, "west": 5})
	kept := f.create(workertest.Request("kept", workertest.Prefer("east")))
	gone := f.create(workertest.Request("gone", workertest.Prefer("east")))
	other := f.create(workertest.Request("other", workertest.Prefer("west")))
	f.restart() // so that what was returned is durable
	w := f.Workers["east"]
	w.Mu.Lock()
	delete(w.Live, gone.GetId())
	delete(w.Keys, ledger.KeyHash("", "default", "gone"))
	w.Mu.Unlock()
	n, err := f.hub.endLost(t.Context(), "east", []*federationv1.KeyHolder{{KeyHash: ledger.KeyHash("", "default", "kept"), Attempt: 1}})
	if err != nil || n != 1 {
		t.Fatalf("%d ended: %v", n, err)
	}
	for key, want := range map[string]ledger.State{"kept": ledger.Returned, "gone": ledger.Ended, "other": ledger.Returned} {
		if got := f.record(key).State; got != want {
			t.Errorf("%s is %s", key, got)
		}
	}
	if got := f.create(workertest.Request("kept", workertest.Prefer("east"))); got.GetId() != kept.GetId() {
		t.Errorf("the one that is there is answered %s", got.GetId())
	}
	if got := f.create(workertest.Request("other", workertest.Prefer("west"))); got.GetId() != other.GetId() {
		t.Errorf("the other cluster's key is answered %s", got.GetId())
	}
	got := f.create(workertest.Request("gone", workertest.Prefer("east")))
	if got.GetId() != gone.GetId() || got.GetPhase() != sandboxv1.Phase_ENDED || got.GetFailureReason() != "EtcdRestored" {
		t.Errorf("the lost one is answered %s, %s, %s", got.GetId(), got.GetPhase(), got.GetFailureReason())
	}
	byID, err := f.hub.Ended(t.Context(), gone.GetId())
	if err != nil || byID.GetFailureReason() != "EtcdRestored" {
		t.Errorf("by its id: %v %v", byID, err)
	}
}

// TestADamagedRecordHidesNoLostSandbox that comes after it in the ledger.
func TestADamagedRecordHidesNoLostSandbox(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 5})
	f.create(workertest.Request("gone"))
	f.restart() // so that what was returned is durable
	f.Workers["east"].Forget()
	before := strings.Repeat("0", 31)
	_, err := f.store.Commit(t.Context(), store.Txn{Puts: []store.Put{
		{Key: ledger.ClaimPrefix + before + "0", Value: []byte("{")},
	}})
	must.Succeed(t, err)
	_, err = f.hub.ledger.Save(t.Context(), before+"1", ledger.Held{}, &ledger.Record{
		Request: []byte("{"), Cluster: "east", Attempt: 1, State: ledger.Returned,
	})
	must.Succeed(t, err)
	n, err := f.hub.endLost(t.Context(), "east", nil)
	if err != nil || n != 1 || f.record("gone").State != ledger.Ended {
		t.Errorf("%d ended: %v; the lost one is %s", n, err, f.record("gone").State)
	}
}
