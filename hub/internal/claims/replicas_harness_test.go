// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/pkg/store"
)

// replica is one of several replicas of a hub: its way to the store and to the workers can be cut.
type replica struct {
	*Service
	store.Shared
	workers calls.Dispatcher

	// onDispatch, if set, runs before a claim is sent; an error of it is the outcome.
	onDispatch func(ctx context.Context, c *federationv1.ClaimCall) error
	silent     atomic.Bool // the store does not respond but to reads that may be stale
	dead       atomic.Bool // nothing that it writes arrives
	sweeps     atomic.Int32
	delay      func() time.Duration
	onRead     func() // after the store has read
}

// replicated is a federation with several replicas over one store.
type replicated struct {
	*federation
	memory   *store.Memory
	replicas []*replica
}

func newReplicas(t *testing.T, idle map[string]int32, n int) *replicated {
	t.Helper()
	f := &replicated{federation: newFederation(t, idle), memory: store.NewMemory()}
	for i := range n {
		f.add(fmt.Sprintf("hub-%d", i), nil)
	}
	return f
}

func (f *replicated) add(name string, live func(string) bool) *replica {
	r := &replica{Shared: f.memory, workers: f.Federation}
	r.Service = New(Options{
		Fleet: f.Fleet, Dispatcher: r, Store: r, Replica: name, Live: live, Log: testlog.New(f.t).WithName(name),
		Rand: func() uint64 { return 7 },
	})
	f.replicas = append(f.replicas, r)
	f.t.Cleanup(r.Service.Close)
	return r
}

func (f *replicated) recordOf(key string) *ledger.Record {
	f.t.Helper()
	h, err := ledger.New(f.memory).Load(f.t.Context(), ledger.KeyHash("", "default", key))
	must.Succeed(f.t, err)
	return h.Record
}

func (f *replicated) live() (n int) {
	for _, w := range f.Workers {
		n += w.Count()
	}
	return n
}

// die ends a replica: nothing that it does from now on arrives.
func (r *replica) die() {
	r.dead.Store(true)
	r.Service.Close()
}

// Close overrides that of the store, which outlives a replica.
func (r *replica) Close() error { return nil }

func (r *replica) wait(ctx context.Context) error {
	if r.delay != nil {
		time.Sleep(r.delay())
	}
	if r.dead.Load() {
		return store.ErrClosed
	}
	if r.silent.Load() && !store.MayBeStale(ctx) {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (r *replica) Get(ctx context.Context, key string) (store.Entry, bool, error) {
	if err := r.wait(ctx); err != nil {
		return store.Entry{}, false, err
	}
	entry, found, err := r.Shared.Get(ctx, key)
	if r.onRead != nil {
		r.onRead()
	}
	return entry, found, err
}

func (r *replica) Range(ctx context.Context, prefix, after string, limit int) ([]store.Entry, error) {
	if err := r.wait(ctx); err != nil {
		return nil, err
	}
	if strings.HasPrefix(prefix, "expire/") {
		r.sweeps.Add(1)
	}
	return r.Shared.Range(ctx, prefix, after, limit)
}

func (r *replica) Commit(ctx context.Context, txn store.Txn) (uint64, error) {
	if err := r.wait(ctx); err != nil {
		return 0, err
	}
	return r.Shared.Commit(ctx, txn)
}

// Dispatch implements calls.Dispatcher.
func (r *replica) Dispatch(ctx context.Context, cluster string, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	if r.dead.Load() {
		return nil, fmt.Errorf("%w: %s", calls.ErrNotConnected, cluster)
	}
	if c := d.GetClaim(); c != nil && r.onDispatch != nil {
		if err := r.onDispatch(ctx, c); err != nil {
			return nil, err
		}
	}
	return r.workers.Dispatch(ctx, cluster, d)
}
