// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"strings"
	"sync"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

// lateLearner writes down what was answered no sooner than somebody asks for it.
type lateLearner struct {
	store.Store
	asked chan struct{}
	once  sync.Once
}

func (l *lateLearner) Get(ctx context.Context, key string) (store.Entry, bool, error) {
	if strings.HasPrefix(key, idPrefix) {
		defer l.once.Do(func() { close(l.asked) })
	}
	return l.Store.Get(ctx, key)
}

func (l *lateLearner) Commit(ctx context.Context, txn store.Txn) (uint64, error) {
	for _, put := range txn.Puts {
		if strings.HasPrefix(put.Key, idPrefix) {
			<-l.asked
		}
	}
	return l.Store.Commit(ctx, txn)
}

// TestI2AReleaseIsDurableBeforeItIsSent: a cluster that is away when a sandbox is released ends it when it is back, and its
// key answers how it ended, whether or not the sandbox's own record ever arrives.
func TestI2AReleaseIsDurableBeforeItIsSent(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3})
	f.hub.ledger.store = &lateLearner{Store: f.store, asked: make(chan struct{})}
	k := f.create(request("k"))
	east := f.workers["east"]
	east.setConnected(false)
	_, err := f.hub.Release(t.Context(), k.GetId())
	wantReason(t, err, problem.Unavailable)
	if got := f.create(request("k")); got.GetPhase() != sandboxv1.Phase_ENDED || got.GetStopReason() != "Released" || got.GetId() != k.GetId() {
		t.Errorf("the key answers %s, %s, %s", got.GetId(), got.GetPhase(), got.GetStopReason())
	}
	east.setConnected(true)
	f.tell("east")
	if east.count() != 0 {
		t.Error("the sandbox runs on")
	}
	if err := f.hub.OnEnded(t.Context(), "east", endedOf(k, "k", 1)); err != nil {
		t.Fatal(err)
	}
	if got := f.create(request("k")); got.GetStopReason() != "Completed" {
		t.Errorf("its own record does not take the place of what the hub wrote: %s", got.GetStopReason())
	}
}
