// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
