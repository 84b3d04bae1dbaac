// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

// Without the store's quorum claims with a key are refused with the reason, soon and then at once. Everything else goes on.
func TestWithoutTheStoreOnlyClaimsWithAKeyAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newReplicas(t, map[string]int32{"east": 9}, 1)
		hub := f.replicas[0]
		keyed := workertest.Create(t, hub, workertest.Request("before"))
		hub.silent.Store(true)
		for i, within := range []time.Duration{storePatience, storePatience} {
			began := time.Now()
			_, err := hub.Create(t.Context(), workertest.Request("k"))
			workertest.WantReason(t, err, problem.Unavailable)
			if took := time.Since(began); took > within || !errors.Is(err, errSilent) {
				t.Errorf("call %d: after %s: %v", i, took, err)
			}
		}
		probe := ask(hub, workertest.Request("probe"))
		synctest.Wait()
		began := time.Now()
		_, err := hub.CancelClaim(t.Context(), cancelOf("before"))
		workertest.WantReason(t, err, problem.Unavailable)
		if _, err := hub.Ended(t.Context(), keyed.GetId()); err != nil {
			t.Errorf("reading a terminal record: %v", err)
		}
		unkeyed := workertest.Create(t, hub, workertest.Request(""))
		for _, s := range []*sandboxv1.Sandbox{unkeyed, keyed} {
			if _, err := hub.End(t.Context(), "east", s.GetId()); err != nil {
				t.Errorf("releasing %s: %v", s.GetId(), err)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("while one call tries the store, the others take %s", took)
		}
		if got := <-probe; reasonOf(got.err) != problem.Unavailable {
			t.Error(got)
		}
		hub.silent.Store(false)
		if got := workertest.Create(t, hub, workertest.Request("k")); got.GetPhase() != sandboxv1.Phase_RUNNING || f.live() != 1 {
			t.Errorf("with the store: %v, %d sandboxes", got, f.live())
		}
	})
}

// A sandbox whose record could not be written is not returned, and the key's next call gets it.
func TestI2WithoutItsRecordASandboxIsNotReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newReplicas(t, map[string]int32{"east": 5}, 2)
		a, b := f.replicas[0], f.replicas[1]
		f.Workers["east"].OnClaim = after(func() { a.silent.Store(true) })
		got := <-ask(a, workertest.Request("k"))
		workertest.WantReason(t, got.err, problem.Unavailable)
		f.Workers["east"].OnClaim = nil
		s := workertest.Create(t, b, workertest.Request("k"))
		a.silent.Store(false)
		if again := workertest.Create(t, a, workertest.Request("k")); again.GetId() != s.GetId() || f.live() != 1 {
			t.Errorf("%s and %s, %d sandboxes", s.GetId(), again.GetId(), f.live())
		}
	})
}

// A hub of one replica writes once before a keyed claim is returned and once after, and reads once.
func TestOneReplicaWritesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		calls := &counted{Store: f.store}
		f.hub.Close()
		f.hub = New(Options{Fleet: f.Fleet, Dispatcher: f, Store: calls})
		f.create(workertest.Request("k"))
		settleDown()
		if got := fmt.Sprintf("%d reads, %d writes, %d of them lazy", calls.reads, calls.writes, calls.lazy); got !=
			"1 reads, 2 writes, 1 of them lazy" {
			t.Error(got)
		}
		r := f.record("k")
		if r.Joined || r.Replica != "" {
			t.Errorf("record %+v", r)
		}
	})
}

type counted struct {
	store.Store
	reads, writes, lazy int
}

func (c *counted) Get(ctx context.Context, key string) (store.Entry, bool, error) {
	c.reads++
	return c.Store.Get(ctx, key)
}

func (c *counted) Commit(ctx context.Context, txn store.Txn) (uint64, error) {
	c.writes++
	if txn.Lazy {
		c.lazy++
	}
	return c.Store.Commit(ctx, txn)
}
