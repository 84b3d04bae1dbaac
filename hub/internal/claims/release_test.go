// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

// lateLearner delays the write of a returned sandbox until the test requests it.
type lateLearner struct {
	store.Store
	asked chan struct{}
	once  sync.Once
}

func (l *lateLearner) Get(ctx context.Context, key string) (store.Entry, bool, error) {
	if strings.HasPrefix(key, ledger.IDPrefix) {
		defer l.once.Do(func() { close(l.asked) })
	}
	return l.Store.Get(ctx, key)
}

func (l *lateLearner) Commit(ctx context.Context, txn store.Txn) (uint64, error) {
	for _, put := range txn.Puts {
		if strings.HasPrefix(put.Key, ledger.IDPrefix) {
			<-l.asked
		}
	}
	return l.Store.Commit(ctx, txn)
}

// TestI2AReleaseIsDurableBeforeItIsSent: a cluster that is away when a sandbox is released ends it when it returns, and its key
// returns how it ended, whether or not the sandbox's own record ever arrives.
func TestI2AReleaseIsDurableBeforeItIsSent(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3})
	f.hub.ledger = ledger.New(&lateLearner{Store: f.store, asked: make(chan struct{})})
	k := f.create(workertest.Request("k"))
	east := f.Workers["east"]
	east.SetConnected(false)
	if ended, err := f.hub.Ended(t.Context(), k.GetId()); ended != nil || err != nil {
		t.Fatalf("before its release: %v, %v", ended, err)
	}
	_, err := f.hub.End(t.Context(), "east", k.GetId())
	workertest.WantReason(t, err, problem.Unavailable)
	if !strings.Contains(err.Error(), "the release is recorded") {
		t.Errorf("the caller is not told that the release is durable: %v", err)
	}
	if got := f.create(workertest.Request("k")); got.GetPhase() != sandboxv1.Phase_ENDED || got.GetStopReason() != "Released" ||
		got.GetId() != k.GetId() {
		t.Errorf("the key answers %s, %s, %s", got.GetId(), got.GetPhase(), got.GetStopReason())
	}
	east.SetConnected(true)
	f.tell("east")
	if east.Count() != 0 {
		t.Error("the sandbox runs on")
	}
	must.Succeed(t, f.hub.OnEnded(t.Context(), "east", workertest.Ended(k, "k", 1)))
	if got := f.create(workertest.Request("k")); got.GetStopReason() != "Completed" {
		t.Errorf("its own record does not take the place of what the hub wrote: %s", got.GetStopReason())
	}
}

// TestI2WhatWasAnsweredIsWrittenDownInTheEnd: with a disk that fills up after the dispatch only this process has the result. Its
// release waits until the result is durable.
func TestI2WhatWasAnsweredIsWrittenDownInTheEnd(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3})
	d := &disk{Store: f.store}
	f.hub.ledger = ledger.New(d)
	f.Workers["east"].OnClaim = after(func() { d.full.Store(true) })
	k := f.create(workertest.Request("k"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.hub.End(ctx, "east", k.GetId()); err == nil {
		t.Fatal("released, with no record that it had been returned")
	}
	d.full.Store(false)
	_, err := f.hub.End(t.Context(), "east", k.GetId())
	must.Succeed(t, err)
	if got := f.create(workertest.Request("k")); got.GetPhase() != sandboxv1.Phase_ENDED || got.GetId() != k.GetId() {
		t.Errorf("the key answers %s, %s", got.GetId(), got.GetPhase())
	}
}

// A release without a key is repeated while the hub runs, and its caller is told that a restart forgets it.
func TestAReleaseWithoutAKeyIsRepeatedAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 3})
		defer runHub(t, f.hub)()
		id, east := f.create(workertest.Request("")).GetId(), f.Workers["east"]
		east.SetConnected(false)
		_, err := f.hub.End(t.Context(), "east", id)
		workertest.WantReason(t, err, problem.Unavailable)
		if !strings.Contains(err.Error(), "forgets it when it restarts") {
			t.Errorf("the caller is told %v", err)
		}
		east.SetConnected(true)
		time.Sleep(2 * endingEvery)
		synctest.Wait()
		if east.Count() != 0 {
			t.Error("the sandbox runs on")
		}
		t.Log("where there is no room for its cluster, it is not repeated")
		id = f.create(workertest.Request("")).GetId()
		east.SetConnected(false)
		for n := range int32(maxEndings) {
			f.hub.endings.add(ending{cluster: "east", attempt: n})
		}
		if _, err = f.hub.End(t.Context(), "east", id); err == nil || !strings.Contains(err.Error(), "the release is not recorded") {
			t.Errorf("the caller is told %v", err)
		}
	})
}
