// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble is a subtest with a clock of its own.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// runHub runs a hub until the returned function stops it, and waits for its end.
func runHub(t *testing.T, hub *Service) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

type created struct {
	sandbox *sandboxv1.Sandbox
	err     error
}

// ask claims in the background.
func ask(hub workertest.Creator, req *sandboxv1.CreateSandboxRequest) <-chan created {
	out := make(chan created, 1)
	go func() {
		sandbox, err := hub.Create(context.Background(), req)
		out <- created{sandbox, err}
	}()
	return out
}

// federation is a hub's claims on a real store, with a real fleet and simulated workers.
type federation struct {
	*workertest.Federation
	t        *testing.T
	store    store.Store
	recovery *recovery.State // nil: nothing was ever lost
	hub      *Service
}

// newFederation sets up clusters with so many idle Pods each, in the Env default/demo.
func newFederation(t *testing.T, idle map[string]int32) *federation {
	t.Helper()
	s, err := store.OpenBolt(filepath.Join(t.TempDir(), "claims.db"), "claims")
	must.Succeed(t, err)
	f := &federation{Federation: workertest.New(t, idle), t: t, store: s}
	f.start()
	t.Cleanup(func() {
		f.hub.Close()
		if err := f.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// start starts a hub process on the store.
func (f *federation) start() {
	f.hub = New(Options{
		Fleet: f.Fleet, Dispatcher: f, Store: f.store, Recovery: f.recovery, Log: testlog.New(f.t), Rand: func() uint64 { return 7 },
	})
}

// restart ends the hub process, whatever it waits for, and starts another.
func (f *federation) restart() {
	f.hub.Close()
	f.start()
}

func (f *federation) create(r *sandboxv1.CreateSandboxRequest) *sandboxv1.Sandbox {
	f.t.Helper()
	return workertest.Create(f.t, f.hub, r)
}

// wantReason makes a claim that must fail for a reason, and returns its error.
func (f *federation) wantReason(want problem.Reason, r *sandboxv1.CreateSandboxRequest) error {
	f.t.Helper()
	_, err := f.hub.Create(f.t.Context(), r)
	workertest.WantReason(f.t, err, want)
	return err
}

// leave makes a claim whose caller leaves when the worker's response is lost. Only one that is carried out gets a sandbox.
func (f *federation) leave(cluster string, r *sandboxv1.CreateSandboxRequest, carriedOut bool) {
	ctx, cancel := context.WithCancel(f.t.Context())
	f.Workers[cluster].OnClaim = func(_ context.Context, _ *federationv1.ClaimCall,
		carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
		if carriedOut {
			carryOut()
		}
		cancel()
		return nil, workertest.ErrBroken
	}
	_, _ = f.hub.Create(ctx, r)
}

// stored lists the keys of the store.
func (f *federation) stored() string {
	f.t.Helper()
	entries, err := f.store.Range(f.t.Context(), "", "", 0)
	must.Succeed(f.t, err)
	keys := make([]string, 0, len(entries))
	for _, e := range entries {
		keys = append(keys, e.Key)
	}
	return strings.Join(keys, " ")
}

func (f *federation) record(key string) *ledger.Record {
	f.t.Helper()
	h, err := f.hub.ledger.Load(f.t.Context(), ledger.KeyHash("", "default", key))
	must.Succeed(f.t, err)
	return h.Record
}
