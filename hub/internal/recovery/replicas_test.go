// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/etcdtest"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

func opened(t *testing.T, claims, registry store.Store) *State {
	t.Helper()
	s, err := Open(t.Context(), claims, registry, clock.RealClock{})
	must.Succeed(t, err)
	return s
}

func onEtcd(t *testing.T, e *etcdtest.Etcd, prefix string, kind hubstate.Kind) *store.Etcd {
	t.Helper()
	s, err := store.OpenEtcd(t.Context(), store.EtcdOptions{Endpoints: e.Endpoints(), Prefix: prefix, Kind: string(kind), Schema: 2})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func marksOf(s *State) Marks { return Marks{State: s, Clock: clock.RealClock{}, Log: logr.Discard()} }

// running follows the ledger until the test ends.
func running(t *testing.T, states ...*State) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for _, s := range states {
		group.Go(func() { must.Succeed(t, s.Run(ctx, clock.RealClock{})) })
	}
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
}

func wantBoth(t *testing.T, a, b *State, want string) {
	t.Helper()
	synctest.Wait()
	if one, other := a.text("east", "west"), b.text("east", "west"); one != want || other != want || *a.id.Load() != *b.id.Load() {
		t.Errorf("%s %q and %s %q, want %q", *a.id.Load(), one, *b.id.Load(), other, want)
	}
}

// Replicas that start at a time on a new store make one ledger, with one secret.
func TestReplicasMakeOneLedger(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{})
	claims, registry := onEtcd(t, e, "/atoll", hubstate.Claims), onEtcd(t, e, "/atoll", hubstate.Registry)
	var group sync.WaitGroup
	states := make([]*State, 10)
	for i := range states {
		group.Go(func() { states[i] = opened(t, claims, registry) })
	}
	group.Wait()
	for _, s := range states {
		if *s.id.Load() != *states[0].id.Load() || !s.proofs.Equal(states[0].proofs) || s.Recovering() || s.Epoch() != 0 {
			t.Errorf("%s: %s, want %s", *s.id.Load(), s.text(), *states[0].id.Load())
		}
	}
	running(t, states[:2]...)
	lost := *states[0].id.Load()
	_, err := claims.Commit(t.Context(), store.Txn{Deletes: []string{hubstate.LedgerKey}})
	must.Succeed(t, err)
	wait.For(t, time.Minute, "both to recover", func(context.Context) error {
		one, other := *states[0].id.Load(), *states[1].id.Load()
		return wait.If(one == other && one != lost && states[0].Recovering() && states[1].Recovering(), states[0].text())
	})
}

// TestI2AnEtcdWhoseRevisionsRoseIsNoticed: a restore with --bump-revision, or others' writes, raise it beyond every mark. What workers
// remember of its commits shows that it was set back.
func TestI2AnEtcdWhoseRevisionsRoseIsNoticed(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{})
	put := func(s *store.Etcd, key string) uint64 {
		at, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: key}}})
		must.Succeed(t, err)
		return at
	}
	claims, registry := onEtcd(t, e, "/atoll", hubstate.Claims), onEtcd(t, e, "/atoll", hubstate.Registry)
	before := opened(t, claims, registry)
	backup := filepath.Join(t.TempDir(), "backup")
	e.Backup(backup)
	put(claims, "claim/k")
	mark := marksOf(before).Mark()
	if lost, err := marksOf(before).Remembered(t.Context(), "east", mark); lost || err != nil {
		t.Fatalf("it was set back, and is not: %t, %v", lost, err)
	}
	must.Succeed(t, errors.Join(claims.Close(), registry.Close()))
	e.Restore(backup)
	for other := onEtcd(t, e, "/other", hubstate.Claims); put(other, "x") <= mark.GetRevision()+10; {
	}
	after := opened(t, onEtcd(t, e, "/atoll", hubstate.Claims), onEtcd(t, e, "/atoll", hubstate.Registry))
	for what, change := range map[string]func(*federationv1.LedgerMark){
		"of a worker of before": func(m *federationv1.LedgerMark) { m.Commits, m.CommitsProof = 0, "" },
		"with invented commits": func(m *federationv1.LedgerMark) { m.Commits++ },
	} {
		m := proto.CloneOf(mark)
		change(m)
		if lost, err := marksOf(after).Remembered(t.Context(), "east", m); lost || err != nil {
			t.Errorf("the mark %s: lost %t, %v", what, lost, err)
		}
	}
	lost, err := marksOf(after).Remembered(t.Context(), "east", mark)
	if err != nil || !lost || after.text("east") != "epoch 1 LedgerSetBack recovering=true accepted=false over=false east" {
		t.Errorf("I2: lost %t, %s, %v", lost, after.text("east"), err)
	}
}

// TestI2ARecoveryIsOneForAllReplicas: what one notices, all wait for; what one hears, counts for all.
func TestI2ARecoveryIsOneForAllReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claims, registry := store.NewMemory(), store.NewMemory()
		a, b := opened(t, claims, registry), opened(t, claims, registry)
		var anew atomic.Int32
		b.OnReplaced(func() { anew.Add(1) })
		running(t, a, b)
		wantBoth(t, a, b, "epoch 0")
		mark, ok := a.Mark()
		if !ok {
			t.Fatal("no mark")
		}
		mark.Revision += 1000
		mark.Proof = markUnder(a.proofs.Secrets[0], mark.Mark)
		if lost, err := marksOf(a).Remembered(t.Context(), "east", mark.Proto()); !lost || err != nil {
			t.Fatal(lost, err)
		}
		wantBoth(t, a, b, "epoch 1 LedgerSetBack recovering=true accepted=false over=false east,west")
		if n := anew.Load(); n != 1 {
			t.Errorf("b's streams began anew %d times", n)
		}
		must.Succeed(t, a.Heard(t.Context(), "east"))
		must.Succeed(t, b.Heard(t.Context(), "west")) // b has not heard of east's
		must.Succeed(t, b.Saw(t.Context(), FirstAttempt(3)))
		wantBoth(t, a, b, "epoch 4 LedgerSetBack recovering=true accepted=false over=false")
		must.Succeed(t, a.Settle(t.Context(), []string{"east", "west"}))
		wantBoth(t, a, b, "epoch 4 LedgerSetBack recovering=false accepted=false over=true")
		if got := opened(t, claims, registry).text(); got != "epoch 4 LedgerSetBack recovering=false accepted=false over=true" {
			t.Errorf("a third one: %s", got)
		}
	})
}

// away is a shared ledger that may not respond.
type away struct {
	*store.Memory
	gone atomic.Bool
}

func (a *away) Committed() store.Position { return store.Position{Revision: 1} }

func (a *away) Reached(context.Context) (store.Position, error) {
	if a.gone.Load() {
		return store.Position{}, store.ErrUnavailable
	}
	revision, err := a.Revision()
	return store.Position{Revision: revision}, err
}

// TestI2AMarkIsComparedOnceTheStoreResponds: a worker attaches without the store, and no claim with a key is served before.
func TestI2AMarkIsComparedOnceTheStoreResponds(t *testing.T) {
	for name, tc := range map[string]struct {
		revision uint64
		lost     string
	}{"fine": {1, "epoch 0"}, "set back": {1 << 40, "epoch 1 LedgerSetBack recovering=true accepted=false over=false"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				claims := &away{Memory: store.NewMemory()}
				s := opened(t, claims, store.NewMemory())
				var anew atomic.Int32
				s.OnReplaced(func() { anew.Add(1) })
				running(t, s)
				mark, _ := s.Mark()
				mark.Revision = tc.revision
				mark.Proof = markUnder(s.proofs.Secrets[0], mark.Mark)
				claims.gone.Store(true)
				_, because, err := s.Remembered(t.Context(), mark, time.Now())
				if err != nil || because != "" || !s.Recovering() {
					t.Errorf("without the store: %s %v, recovering %t", because, err, s.Recovering())
				}
				time.Sleep(5 * followPause)
				if synctest.Wait(); !s.Recovering() || s.Epoch() != 0 {
					t.Error("it was compared without the store")
				}
				claims.gone.Store(false)
				time.Sleep(2 * followPause)
				synctest.Wait()
				if got, lost := s.text(), tc.lost != "epoch 0"; got != tc.lost || s.Recovering() != lost || (anew.Load() == 1) != lost {
					t.Errorf("%s, streams began anew %d times, want %s", got, anew.Load(), tc.lost)
				}
			})
		})
	}
}

// TestARenamedLedgerIsNotAnotherOne: a replica that replaced the ledger and died before it wrote the registry causes no other recovery.
func TestARenamedLedgerIsNotAnotherOne(t *testing.T) {
	claims, registry := store.NewMemory(), store.NewMemory()
	a := opened(t, claims, registry)
	next, err := succeed(a.ledger, hubstate.LedgerSetBack, 1, time.Now(), "")
	must.Succeed(t, err)
	_, err = hubstate.SwapLedger(t.Context(), claims, a.revision, next)
	must.Succeed(t, err)
	b := opened(t, claims, registry)
	if got := b.text(); got != "epoch 1 LedgerSetBack recovering=true accepted=false over=false" || *b.id.Load() != next.ID {
		t.Errorf("%s: %s", *b.id.Load(), got)
	}
	if id, err := hubstate.LoadIdentity(t.Context(), registry); err != nil || *id != next.Identity {
		t.Errorf("the registry names %v, %v", id, err)
	}
	must.Succeed(t, a.Heard(t.Context(), "east")) // a is behind: it has nothing to hear of
	if got := opened(t, claims, registry).text("east"); got != "epoch 1 LedgerSetBack recovering=true accepted=false over=false east" {
		t.Error(got)
	}
}
