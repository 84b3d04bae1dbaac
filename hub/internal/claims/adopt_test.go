// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/store"
)

// loseLedger restarts the hub on an empty claims file, beside a registry that remembers another one.
func (f *federation) loseLedger() {
	f.t.Helper()
	f.hub.Close()
	fresh, err := store.OpenBolt(filepath.Join(f.t.TempDir(), "claims.db"), "claims")
	err = errors.Join(err, f.store.Close(), hubstate.SaveIdentity(f.t.Context(), f.Registry, hubstate.Identity{ID: "lost"}))
	must.Succeed(f.t, err)
	f.store = fresh
	f.reopen()
}

// reopen is a hub's start on its files.
func (f *federation) reopen() {
	f.t.Helper()
	var err error
	f.recovery, err = recovery.Open(f.t.Context(), f.store, f.Registry, clock.RealClock{})
	must.Succeed(f.t, err)
	f.start()
}

// tell makes a cluster send its key index, and the rest of its report.
func (f *federation) tell(cluster string, more ...*federationv1.KeyHolder) {
	f.t.Helper()
	w := f.Workers[cluster]
	w.Mu.Lock()
	index := slices.Clone(more)
	for hash, h := range w.Keys {
		if w.Live[h.ID] != nil {
			index = append(index, &federationv1.KeyHolder{KeyHash: hash, Attempt: h.Attempt, SandboxId: h.ID, PodUid: "pod", Proof: h.Proof})
		}
	}
	w.Mu.Unlock()
	must.Succeed(f.t, f.hub.takeIndex(f.t.Context(), cluster, index, true))
}

// hold creates a live Pod with a key in a cluster.
func (f *federation) hold(cluster, key string, attempt int32) *sandboxv1.Sandbox {
	answer := f.Workers[cluster].Claim(&federationv1.ClaimCall{
		KeyHash: ledger.KeyHash("", "default", key), Attempt: attempt,
		Request: &sandboxv1.CreateSandboxRequest{Namespace: "default", Env: "demo", ClaimKey: key},
	})
	return answer.GetSandbox()
}

func (f *federation) wantRecovering(key string) {
	f.t.Helper()
	f.wantReason(problem.Recovering, workertest.Request(key))
}

// labelled gives a claim another parameter.
func labelled(r *sandboxv1.CreateSandboxRequest) { r.Labels = map[string]string{"a": "b"} }

func (f *federation) wantAnswer(key, id string) {
	f.t.Helper()
	if got := f.create(workertest.Request(key)); got.GetId() != id {
		f.t.Errorf("I2: key %s is answered %s, want %s", key, got.GetId(), id)
	}
}

// TestI2ALostLedgerAnswersNoKeyBeforeAllClustersWereHeard, and then returns what was returned before.
func TestI2ALostLedgerAnswersNoKeyBeforeAllClustersWereHeard(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3, "west": 3})
	k := f.create(workertest.Request("k", workertest.Prefer("east")))
	f.loseLedger()
	f.wantRecovering("k")
	f.wantRecovering("new")
	_, err := f.hub.GetClaim(t.Context(), &sandboxv1.GetClaimRequest{ClaimKey: "k"})
	workertest.WantReason(t, err, problem.Recovering)
	if got := f.create(workertest.Request("")); got.GetId() == "" {
		t.Error("a claim without a key is not served")
	}
	f.tell("west")
	f.wantRecovering("k")
	f.tell("east")
	f.wantAnswer("k", k.GetId())
	f.wantAnswer("k", k.GetId())
	if got := f.create(workertest.Request("new")); got.GetId() == k.GetId() || f.record("new").Attempt != recovery.FirstAttempt(1) {
		t.Errorf("a new key was answered %s under attempt %d", got.GetId(), f.record("new").Attempt)
	}
	if claims := f.Workers["east"].Claims(); len(claims) > 2 {
		t.Errorf("I2: claimed again: %v", claims)
	}
}

// readKey is a store that calls once when a claim key is read.
type readKey struct {
	store.Store
	key  string
	once func()
}

func (r *readKey) Get(ctx context.Context, key string) (store.Entry, bool, error) {
	if key == r.key {
		r.once()
	}
	return r.Store.Get(ctx, key)
}

// TestI2AnIndexFromBeforeALossDoesNotCountForIt: the loss is noticed while the hub looks through the index.
func TestI2AnIndexFromBeforeALossDoesNotCountForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 3})
		lost, err := recovery.Open(t.Context(), workertest.OpenStore(t, "claims"), f.Registry, clock.RealClock{})
		must.Succeed(t, err)
		far, ok := lost.Mark()
		if !ok {
			t.Fatal("the lost ledger has no mark")
		}
		_, err = f.Registry.Commit(t.Context(), store.Txn{Deletes: []string{hubstate.LedgerKey}})
		must.Succeed(t, err)
		f.hub.Close()
		f.reopen()
		if !f.recovery.Whole() {
			t.Fatal("it recovers before a cluster has told")
		}
		f.hub.Close()
		hash := ledger.KeyHash("", "default", "k")
		f.store = &readKey{f.store, ledger.ClaimPrefix + hash, sync.OnceFunc(func() {
			if _, because, err := f.recovery.Remembered(t.Context(), far, time.Now()); err != nil || because == "" {
				t.Errorf("the loss is not noticed: %q, %v", because, err)
			}
		})}
		f.start()
		f.hub.OnKeys("east", []*federationv1.KeyHolder{{KeyHash: hash, Attempt: 1}})
		synctest.Wait()
		if unheard := f.recovery.Unheard([]string{"east"}); len(unheard) != 1 {
			t.Error("I2: the cluster counts as heard")
		}
		f.hub.OnKeys("east", nil)
		synctest.Wait()
		if unheard := f.recovery.Unheard([]string{"east"}); len(unheard) != 0 {
			t.Error("the cluster does not count as heard by its next index")
		}
	})
}

// TestI2AnAdoptedKeyTakesTheParametersOfItsFirstRetry: they are unknown before, except for what the sandbox shows.
func TestI2AnAdoptedKeyTakesTheParametersOfItsFirstRetry(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3})
	k := f.create(workertest.Request("k"))
	f.loseLedger()
	f.tell("east")
	f.wantReason(problem.ClaimKeyConflict, workertest.Request("k", labelled))
	f.wantAnswer("k", k.GetId())
	f.wantReason(problem.ClaimKeyConflict, workertest.Request("k", func(r *sandboxv1.CreateSandboxRequest) { r.NoQueue = true }))
}

// A caller that is bound to a team, a user or Envs sees and cancels its own claims, and no others, although the ledger that had their
// requests was lost.
func TestACallerSeesItsAdoptedClaims(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3})
	team := func(user string) context.Context {
		return principal.With(t.Context(), principal.Principal{Team: "t", User: user, AllNamespaces: true})
	}
	ofEnv := func(env string) context.Context {
		policy := access.NewPolicy(&sandboxv1.AccessPolicy{Bindings: []*sandboxv1.RoleBinding{{
			Name: "b", Role: access.User, Namespaces: []string{"default"}, Envs: []string{"default/" + env},
			Subjects: []*sandboxv1.Subject{{Kind: access.SubjectTeam, Name: "t"}},
		}}})
		who := &access.Identity{Kind: access.KindOIDC, Name: "ann", Team: "t", AllNamespaces: true}
		get := access.OfMethod(sandboxv1.Claims_GetClaim_FullMethodName).Permission
		return principal.With(t.Context(), principal.Of(who, get, policy.Grant(who, get)))
	}
	k, err := f.hub.Create(team("u"), workertest.Request("k"))
	must.Succeed(t, err)
	f.loseLedger()
	f.tell("east")
	for name, c := range map[string]struct {
		as   context.Context
		sees bool
	}{
		"its team": {team(""), true}, "its user": {team("u"), true}, "another user": {team("v"), false},
		"its Env": {ofEnv("demo"), true}, "another Env": {ofEnv("other"), false},
	} {
		claim, err := f.hub.GetClaim(c.as, &sandboxv1.GetClaimRequest{ClaimKey: "k"})
		if c.sees && (err != nil || claim.GetSandbox().GetId() != k.GetId()) {
			t.Errorf("%s gets %v: %v", name, claim, err)
		}
		if !c.sees {
			workertest.WantReason(t, err, problem.NotFound)
		}
	}
	_, err = f.hub.CancelClaim(ofEnv("other"), &sandboxv1.CancelClaimRequest{ClaimKey: "k"})
	workertest.WantReason(t, err, problem.NotFound)
	_, err = f.hub.CancelClaim(team(""), &sandboxv1.CancelClaimRequest{ClaimKey: "k"})
	if must.Succeed(t, err); f.Workers["east"].Count() != 0 {
		t.Error("the sandbox of a canceled claim stays")
	}
}

// TestAFlightThatProvedNothingIsNoConflict: while the cluster of an adopted key is away, the first caller need not be its owner.
func TestAFlightThatProvedNothingIsNoConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 3})
		k := f.create(workertest.Request("k"))
		f.loseLedger()
		f.tell("east")
		f.Workers["east"].SetConnected(false)
		wrong := ask(f.hub, workertest.Request("k", labelled))
		synctest.Wait()
		f.wantReason(problem.OutcomeUnknown, workertest.Request("k",
			func(r *sandboxv1.CreateSandboxRequest) { r.StartupTimeout = durationpb.New(time.Second) }))
		time.AfterFunc(10*time.Second, func() { f.Workers["east"].SetConnected(true) })
		f.wantAnswer("k", k.GetId())
		workertest.WantReason(t, (<-wrong).err, problem.ClaimKeyConflict)
	})
}

// TestI2OfTwoClustersWithOneKeyTheLaterAttemptStays, whichever reports first.
func TestI2OfTwoClustersWithOneKeyTheLaterAttemptStays(t *testing.T) {
	for _, order := range [][]string{{"east", "west"}, {"west", "east"}} {
		f := newFederation(t, map[string]int32{"east": 3, "west": 3})
		f.hold("east", "k", 1)
		later := f.hold("west", "k", 2)
		f.loseLedger()
		for _, cluster := range order {
			f.tell(cluster)
		}
		f.wantAnswer("k", later.GetId())
		f.hub.Close() // waits for background work
		if f.Workers["east"].Count() != 0 || f.Workers["west"].Count() != 1 {
			t.Errorf("heard %v: %d Pods in east, %d in west", order, f.Workers["east"].Count(), f.Workers["west"].Count())
		}
	}
}

// TestI6APodThatMayHaveBeenReturnedStays where a key got a new sandbox because a loss was accepted.
func TestI6APodThatMayHaveBeenReturnedStays(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3, "west": 3})
	before := f.hold("east", "k", 1)
	f.loseLedger()
	f.tell("west")
	must.Succeed(t, f.recovery.Accept(t.Context()))
	anew := f.create(workertest.Request("k", workertest.Prefer("east")))
	if anew.GetClusterId() != "west" {
		t.Errorf("I2: a key went to %s, which may have it", anew.GetClusterId())
	}
	f.tell("east")
	got := f.create(workertest.Request("k", workertest.Prefer("east")))
	if got.GetId() != anew.GetId() || f.Workers["east"].Live[before.GetId()] == nil {
		t.Errorf("answered %s after %s; east has %d Pods", got.GetId(), anew.GetId(), f.Workers["east"].Count())
	}
	if got := f.create(workertest.Request("next", workertest.Prefer("east"))); got.GetClusterId() != "east" {
		t.Errorf("east was heard and a new key goes to %s", got.GetClusterId())
	}
}

// TestI2NoUnheardClusterIsAskedHoweverManyThereAre where a loss was accepted: one of them holds the key.
func TestI2NoUnheardClusterIsAskedHoweverManyThereAre(t *testing.T) {
	for name, c := range map[string]struct {
		unheard int
		refuses bool // the cluster that was heard
	}{
		"more than a request remembers refusals":         {router.MaxExcluded + 1, false},
		"as many, and the cluster that is heard refuses": {router.MaxExcluded, true},
	} {
		t.Run(name, func(t *testing.T) {
			heard, idle := fmt.Sprint("c", c.unheard), map[string]int32{}
			for i := range c.unheard + 1 {
				idle[fmt.Sprint("c", i)] = 3
			}
			f := newFederation(t, idle)
			before := f.hold("c0", "k", 1)
			f.loseLedger()
			f.tell(heard)
			must.Succeed(t, f.recovery.Accept(t.Context()))
			if c.refuses {
				f.Workers[heard].OnClaim = func(context.Context, *federationv1.ClaimCall, func() *federationv1.Answer) (*federationv1.Answer, error) {
					return workertest.Failure(federationv1.Disposition_REFUSED, problem.NoCapacity), nil
				}
				f.wantReason(problem.NoCapacity, workertest.Request("k", workertest.Prefer("c0")))
			} else if got := f.create(workertest.Request("k", workertest.Prefer("c0"))); got.GetClusterId() != heard {
				t.Errorf("I2: a key went to %s, which may have it", got.GetClusterId())
			}
			for id, w := range f.Workers {
				if asked := w.Claims(); id != heard && len(asked) > 0 {
					t.Errorf("I2: %s was asked for %v", id, asked)
				}
			}
			if f.Workers["c0"].Live[before.GetId()] == nil {
				t.Error("I6: the key's sandbox has ended")
			}
		})
	}
}

// TestI2ASandboxThatAppearsAfterItsRefusalEnds: its worker may have been restarted since, and remembers no refusal.
func TestI2ASandboxThatAppearsAfterItsRefusalEnds(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3})
	east := f.Workers["east"]
	east.OnClaim = func(context.Context, *federationv1.ClaimCall, func() *federationv1.Answer) (*federationv1.Answer, error) {
		return workertest.Failure(federationv1.Disposition_REFUSED, problem.NoCapacity), nil
	}
	f.wantReason(problem.NoCapacity, workertest.Request("k"))
	east.OnClaim = nil
	must.Succeed(t, f.hub.settle(t.Context(), ledger.KeyHash("", "default", "k")))
	refused := f.record("k")
	if refused.State != ledger.Refused {
		t.Fatalf("the record is %s, want %s", refused.State, ledger.Refused)
	}
	f.hold("east", "k", refused.Attempt)
	f.tell("east")
	if n := east.Count(); n != 0 {
		t.Errorf("I2: %d sandboxes of the refused attempt live", n)
	}
	if got := f.create(workertest.Request("k")); got.GetPhase() != sandboxv1.Phase_RUNNING {
		t.Errorf("the key is answered %v", got)
	}
	f.tell("east")
	if n := east.Count(); n != 1 {
		t.Errorf("I2: %d sandboxes live, want the key's", n)
	}
}

// TestI2AKeyWhoseSandboxHadEndedIsNotClaimedAgain after the loss of the ledger.
func TestI2AKeyWhoseSandboxHadEndedIsNotClaimedAgain(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3})
	k := f.hold("east", "k", 1)
	f.Workers["east"].Live[k.GetId()].Phase = sandboxv1.Phase_ENDED
	late := f.hold("east", "late", 1)
	f.loseLedger()
	// One whose record comes before its cluster's key index.
	must.Succeed(t, f.hub.OnEnded(t.Context(), "east", workertest.Ended(late, "late", 1)))
	delete(f.Workers["east"].Live, late.GetId())
	f.tell("east", &federationv1.KeyHolder{KeyHash: ledger.KeyHash("", "default", "k"), Attempt: 1, SandboxId: k.GetId(), Ended: true})
	if got := f.create(workertest.Request("k")); got.GetId() != k.GetId() || got.GetPhase() != sandboxv1.Phase_ENDED {
		t.Errorf("answered %s, %s", got.GetId(), got.GetPhase())
	}
	// Its parameters are those of its sandbox, then those of its first retry.
	f.wantReason(problem.ClaimKeyConflict, workertest.Request("late", labelled))
	f.wantAnswer("late", late.GetId())
	f.wantReason(problem.ClaimKeyConflict, workertest.Request("late", func(r *sandboxv1.CreateSandboxRequest) { r.NoQueue = true }))
}

// TestI2AClaimUnderWayIsJoined: its cluster, its attempt.
func TestI2AClaimUnderWayIsJoined(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3, "west": 3})
	f.loseLedger()
	f.tell("west", &federationv1.KeyHolder{KeyHash: ledger.KeyHash("", "default", "k"), Attempt: 3,
		SandboxId: "01hzzzzzzzzzzzzzzzzzzz9999-west"})
	f.tell("east")
	if got := f.create(workertest.Request("k", workertest.Prefer("east"))); got.GetClusterId() != "west" ||
		!slices.Equal(f.Workers["west"].Claims(), []string{"k/3"}) {
		t.Errorf("answered by %s; west was asked %v", got.GetClusterId(), f.Workers["west"].Claims())
	}
}

// TestI2ARestoredLedgerFollowsKeysThatMovedOn after the backup.
func TestI2ARestoredLedgerFollowsKeysThatMovedOn(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3, "west": 3})
	f.leave("east", workertest.Request("k", workertest.Prefer("east")), false)
	f.hub.Close()
	if r := f.record("k"); r.Cluster != "east" || r.State != ledger.Pending {
		t.Fatalf("record %+v", r)
	}
	moved := f.hold("west", "k", 2)
	f.restoreLedger()
	f.wantRecovering("k")
	f.tell("east")
	f.tell("west")
	f.wantAnswer("k", moved.GetId())
}

// TestADamagedRecordKeepsNoClusterUnheard: other keys are served after a recovery, and its own is neither returned nor claimed.
func TestADamagedRecordKeepsNoClusterUnheard(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 5})
	whole := f.create(workertest.Request("whole"))
	f.create(workertest.Request("record"))
	entry := f.create(workertest.Request("entry"))
	f.loseLedger()
	_, err := f.store.Commit(t.Context(), store.Txn{Puts: []store.Put{
		{Key: ledger.ClaimPrefix + ledger.KeyHash("", "default", "record"), Value: []byte("{")},
		{Key: ledger.IDPrefix + entry.GetId(), Value: []byte("{")},
	}})
	must.Succeed(t, err)
	f.tell("east")
	if unheard := f.recovery.Unheard(f.Fleet.ClusterIDs()); len(unheard) > 0 {
		t.Errorf("not heard are %v", unheard)
	}
	f.wantAnswer("whole", whole.GetId())
	f.wantReason(problem.Unavailable, workertest.Request("record"))
	f.wantReason(problem.OutcomeUnknown, workertest.Request("entry"))
	if claims := f.Workers["east"].Claims(); len(claims) != 3 || f.Workers["east"].Count() != 3 {
		t.Errorf("I2: claimed again: %v; %d Pods", claims, f.Workers["east"].Count())
	}
}

// TestADamagedRecordDelaysNoEndsOfOthers in its batch, which is acknowledged. What can be read keeps the end.
func TestADamagedRecordDelaysNoEndsOfOthers(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 5})
	keys := []string{"both", "record", "entry", "whole"}
	batch, ids := &federationv1.Ended{Batch: 1}, map[string]string{}
	for _, key := range keys {
		sandbox := f.create(workertest.Request(key))
		ids[key] = sandbox.GetId()
		batch.Sandboxes = append(batch.Sandboxes, workertest.Ended(sandbox, key, 1).GetSandboxes()...)
	}
	f.restart() // so that what was returned is durable
	damaged := []byte("{")
	_, err := f.store.Commit(t.Context(), store.Txn{Puts: []store.Put{
		{Key: ledger.ClaimPrefix + ledger.KeyHash("", "default", "both"), Value: damaged}, {Key: ledger.IDPrefix + ids["both"], Value: damaged},
		{Key: ledger.ClaimPrefix + ledger.KeyHash("", "default", "record"), Value: damaged},
		{Key: ledger.IDPrefix + ids["entry"], Value: damaged},
	}})
	must.Succeed(t, err)
	for range 2 { // a repeated batch is acknowledged too
		must.Succeed(t, f.hub.OnEnded(t.Context(), "east", batch))
	}
	for _, key := range keys {
		ended, err := f.hub.Ended(t.Context(), ids[key])
		if kept := err == nil && ended.GetStopReason() == "Completed"; kept != (key != "both") {
			t.Errorf("the end of %s: %v, %v", key, ended, err)
		}
	}
	for _, key := range []string{"entry", "whole"} {
		if got := f.create(workertest.Request(key)); got.GetId() != ids[key] || got.GetStopReason() != "Completed" {
			t.Errorf("%s returns %v", key, got)
		}
	}
	for _, key := range []string{"both", "record"} {
		f.wantReason(problem.Unavailable, workertest.Request(key))
	}
	if claims := f.Workers["east"].Claims(); len(claims) != len(keys) {
		t.Errorf("I2: claimed again: %v", claims)
	}
}

// TestAClusterThatIsAwayDelaysNoEndsOfAnother, although it must say whether it holds the earlier attempt of a key in the batch.
func TestAClusterThatIsAwayDelaysNoEndsOfAnother(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3, "west": 3})
	whole := f.create(workertest.Request("whole", workertest.Prefer("west")))
	f.leave("east", workertest.Request("k", workertest.Prefer("east")), false)
	moved := f.hold("west", "k", 2)
	f.restoreLedger()
	f.Workers["east"].SetConnected(false)
	batch := workertest.Ended(moved, "k", 2)
	batch.Sandboxes = append(batch.Sandboxes, workertest.Ended(whole, "whole", 1).GetSandboxes()...)
	kept := func(id string) bool {
		ended, err := f.hub.Ended(t.Context(), id)
		must.Succeed(t, err)
		return ended.GetStopReason() == "Completed"
	}
	if err := f.hub.OnEnded(t.Context(), "west", batch); err == nil || kept(moved.GetId()) {
		t.Errorf("a claim that east may hold has ended: %v", err)
	}
	if !kept(whole.GetId()) {
		t.Error("another end of the batch is not stored")
	}
	f.Workers["east"].SetConnected(true)
	must.Succeed(t, f.hub.OnEnded(t.Context(), "west", batch))
	if !kept(moved.GetId()) {
		t.Error("the end is not stored once east is back")
	}
}

// TestARestartInTheMiddleOfARecoveryGoesOn with the indexes that have arrived.
func TestARestartInTheMiddleOfARecoveryGoesOn(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3, "west": 3})
	k := f.create(workertest.Request("k", workertest.Prefer("east")))
	f.loseLedger()
	f.tell("east")
	f.hub.Close()
	f.reopen()
	f.wantRecovering("k")
	f.tell("west")
	f.wantAnswer("k", k.GetId())
}
