// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/problem"
)

// planted is the Pod of a cluster that reports another's key as its own.
func (f *federation) planted(cluster, key string, attempt int32) *federationv1.KeyHolder {
	w, hash := f.Workers[cluster], ledger.KeyHash("", "default", key)
	s := w.Claim(&federationv1.ClaimCall{Request: &sandboxv1.CreateSandboxRequest{Namespace: "default", Env: "demo",
		ClaimKey: key}}).GetSandbox()
	w.Keys[hash] = workertest.Holding{ID: s.GetId(), Attempt: attempt}
	return &federationv1.KeyHolder{KeyHash: hash, Attempt: attempt, SandboxId: s.GetId(), PodUid: "pod"}
}

func (f *federation) wantAlarm(cluster string) {
	f.t.Helper()
	if got := testutil.ToFloat64(f.hub.metrics.unsent.WithLabelValues(cluster)); got == 0 {
		f.t.Errorf("I15: no alarm over what %s named", cluster)
	}
	if shown := f.Fleet.Cluster(cluster).GetMessage(); !strings.Contains(shown, "did not send") {
		f.t.Errorf("I15: the state of %s shows %q", cluster, shown)
	}
}

func in(clusters ...string) func(*sandboxv1.CreateSandboxRequest) {
	return func(r *sandboxv1.CreateSandboxRequest) { r.Clusters, r.RequireClusters = clusters, true }
}

// TestI15AClusterIsNotAnsweredForAKeyThatItPlanted, whether it names a live Pod, a running claim or an end.
func TestI15AClusterIsNotAnsweredForAKeyThatItPlanted(t *testing.T) {
	for name, plant := range map[string]func(f *federation, h *federationv1.KeyHolder){
		"a Pod":           func(f *federation, h *federationv1.KeyHolder) { f.tell("evil", h) },
		"claim under way": func(f *federation, h *federationv1.KeyHolder) { h.PodUid = ""; f.tell("evil", h) },
		"an end in the index": func(f *federation, h *federationv1.KeyHolder) {
			h.PodUid, h.Ended = "", true
			f.tell("evil", h)
		},
		"a terminal record": func(f *federation, h *federationv1.KeyHolder) {
			must.Succeed(f.t, f.hub.OnEnded(f.t.Context(), "evil", workertest.Ended(f.Workers["evil"].Live[h.GetSandboxId()], "k", 1)))
		},
	} {
		f := newFederation(t, map[string]int32{"evil": 3, "west": 3})
		plant(f, f.planted("evil", "k", 1))
		if got := f.create(workertest.Request("k", in("west"))); got.GetClusterId() != "west" || got.GetPhase() != sandboxv1.Phase_RUNNING {
			t.Errorf("I15: %s: the key is answered %v", name, got)
		}
	}
}

// TestI15AKeyIsNotTakenAway: neither a later attempt nor one of the last epoch moves it, ends its sandbox or uses up epochs.
func TestI15AKeyIsNotTakenAway(t *testing.T) {
	for _, attempt := range []int32{1, 2, 3, 2_120_000_000, 1<<31 - 1, 0, -5} {
		for _, pending := range []bool{false, true} {
			f := newFederation(t, map[string]int32{"evil": 3, "west": 3})
			if claim := workertest.Request("k", workertest.Prefer("west")); pending { // the record says only that the claim was sent
				f.leave("west", claim, true)
			} else {
				f.create(claim)
			}
			f.restart()
			f.Workers["west"].OnClaim = nil
			h := f.planted("evil", "k", attempt)
			f.tell("evil", h)
			must.Succeed(t, f.hub.OnEnded(t.Context(), "evil", workertest.Ended(f.Workers["evil"].Live[h.GetSandboxId()], "k", attempt)))
			f.wantAlarm("evil")
			got := f.create(workertest.Request("k", workertest.Prefer("west")))
			f.hub.Close() // waits for background work
			if got.GetClusterId() != "west" || f.Workers["west"].Count() != 1 || f.Workers["west"].Canceled > 0 {
				t.Errorf("I15: after attempt %d (pending %t) the key is answered %v; west has %d Pods", attempt, pending, got,
					f.Workers["west"].Count())
			}
		}
	}
}

// TestI15ASandboxIDOfAnotherClusterIsNotTaken, even by a cluster whose keys are missing.
func TestI15ASandboxIDOfAnotherClusterIsNotTaken(t *testing.T) {
	f := newFederation(t, map[string]int32{"evil": 3, "west": 3})
	k := f.create(workertest.Request("k", workertest.Prefer("west")))
	f.loseLedger()
	f.tell("west")
	f.tell("evil",
		&federationv1.KeyHolder{KeyHash: ledger.KeyHash("", "default", "other"), Attempt: 1, SandboxId: k.GetId(), PodUid: "pod"},
		&federationv1.KeyHolder{KeyHash: ledger.KeyHash("", "default", "other"), Attempt: 1, SandboxId: k.GetId(), Ended: true},
		&federationv1.KeyHolder{KeyHash: ledger.KeyHash("", "default", "none"), Attempt: 1, PodUid: "pod"},
		&federationv1.KeyHolder{KeyHash: "../ledger", Attempt: 1, SandboxId: "01hzzzzzzzzzzzzzzzzzzz0009-evil", PodUid: "pod"})
	f.wantAlarm("evil")
	if known, _, err := f.hub.ledger.ByID(t.Context(), k.GetId()); err != nil || known.KeyHash != ledger.KeyHash("", "default", "k") {
		t.Errorf("I15: the id leads to %q: %v", known.KeyHash, err)
	}
	if f.record("other") != nil || f.record("none") != nil {
		t.Error("I15: a key was adopted")
	}
	if _, err := f.hub.End(t.Context(), "west", k.GetId()); err != nil || f.record("k").State != ledger.Ended {
		t.Errorf("the sandbox's release does not end its key: %v", err)
	}
}

// TestI15OneSandboxIsNotAdoptedForTwoKeys: a Pod has one.
func TestI15OneSandboxIsNotAdoptedForTwoKeys(t *testing.T) {
	f := newFederation(t, map[string]int32{"evil": 3})
	f.loseLedger()
	one := f.planted("evil", "one", 1)
	two := proto.CloneOf(one)
	two.KeyHash = ledger.KeyHash("", "default", "two")
	for _, h := range []*federationv1.KeyHolder{one, two} {
		_, err := f.hub.applyHolder(t.Context(), f.hub.sender("evil"), h)
		must.Succeed(t, err)
	}
	if f.record("one") == nil || f.record("two") != nil {
		t.Errorf("I1: adopted as %v and %v", f.record("one"), f.record("two"))
	}
}

// TestI15RequireClustersHoldsForWhatIsAdopted: a cluster that the request forbids is not returned for it.
func TestI15RequireClustersHoldsForWhatIsAdopted(t *testing.T) {
	f := newFederation(t, map[string]int32{"evil": 3, "west": 3})
	f.loseLedger()
	ended := f.planted("evil", "ended", 1)
	ended.PodUid, ended.Ended = "", true
	f.tell("evil", f.planted("evil", "live", 1), &federationv1.KeyHolder{KeyHash: ledger.KeyHash("", "default", "under-way"), Attempt: 1},
		ended)
	f.tell("west")
	for _, key := range []string{"live", "under-way", "ended"} {
		f.wantReason(problem.ClaimKeyConflict, workertest.Request(key, in("west")))
		if got := f.create(workertest.Request(key, in("evil", "west"))); got.GetClusterId() != "evil" {
			t.Errorf("%s is answered by %s", key, got.GetClusterId())
		}
	}
}

// restoreLedger restarts the hub on its files as if they were a backup's.
func (f *federation) restoreLedger() {
	f.t.Helper()
	f.hub.Close()
	err := errors.Join(
		hubstate.SaveLedger(f.t.Context(), f.store, hubstate.Ledger{Identity: hubstate.Identity{ID: "same"}, Restored: true}),
		hubstate.SaveIdentity(f.t.Context(), f.Registry, hubstate.Identity{ID: "same"}))
	must.Succeed(f.t, err)
	f.reopen()
}

// TestI15ARestoredKeyMovesOnlyWhereItMayHaveGone: not to a cluster that its request forbids, nor while the cluster that it was
// sent to holds it.
func TestI15ARestoredKeyMovesOnlyWhereItMayHaveGone(t *testing.T) {
	for name, change := range map[string]func(*sandboxv1.CreateSandboxRequest){"held": workertest.Prefer("west"), "forbidden": in("west")} {
		f := newFederation(t, map[string]int32{"evil": 3, "west": 3})
		f.leave("west", workertest.Request("k", change), name == "held")
		f.restoreLedger()
		f.Workers["west"].OnClaim = nil
		f.tell("evil", f.planted("evil", "k", 2))
		f.tell("west")
		f.wantAlarm("evil")
		got := f.create(workertest.Request("k", change))
		f.hub.Close()
		if got.GetClusterId() != "west" || f.Workers["west"].Count() != 1 || f.Workers["west"].Canceled > 0 {
			t.Errorf("I15: %s: the key is answered %v; west has %d Pods", name, got, f.Workers["west"].Count())
		}
	}
}

// TestI15EpochsAreNotUsedUp by attempts that no ledger can have created; those of a loss that is not in the backup count.
func TestI15EpochsAreNotUsedUp(t *testing.T) {
	f := newFederation(t, map[string]int32{"evil": 9})
	for range 4 {
		f.loseLedger()
		for n, attempt := range []int32{2_120_000_000, 2_139_999_999, 1<<31 - 1, recovery.FirstAttempt(100)} {
			f.tell("evil", &federationv1.KeyHolder{KeyHash: ledger.KeyHash("", "default", string(rune('a'+n))), Attempt: attempt})
		}
		f.wantAlarm("evil")
		if got := f.recovery.Epoch(); got > 4 {
			t.Fatalf("I15: the epoch is %d", got)
		}
	}
	f.loseLedger()
	behind := recovery.FirstAttempt(f.recovery.Epoch() + 3)
	f.tell("evil", &federationv1.KeyHolder{KeyHash: ledger.KeyHash("", "default", "behind"), Attempt: behind})
	if got := f.record("behind"); got == nil || f.recovery.Epoch() != recovery.EpochOf(behind)+1 {
		t.Errorf("adopted %+v in epoch %d", got, f.recovery.Epoch())
	}
}
