// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"testing"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/testlog"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/claims"
	"navix.sh/atoll/hub/internal/lastknown"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// federation is a hub's sandboxes and claims, with simulated workers.
type federation struct {
	*workertest.Federation
	t      *testing.T
	ledger store.Store
	claims *claims.Service
	known  *lastknown.Sandboxes
	hub    *Service
}

func newFederation(t *testing.T, idle map[string]int32) *federation {
	t.Helper()
	f := &federation{Federation: workertest.New(t, idle), t: t, ledger: workertest.OpenStore(t, "claims")}
	f.start()
	t.Cleanup(func() { f.claims.Close() })
	return f
}

func (f *federation) start() {
	f.known = lastknown.New(lastknown.Options{Dispatcher: f, Clusters: f.Fleet.ClusterIDs, Clock: clock.RealClock{}})
	f.claims = claims.New(claims.Options{
		Fleet: f.Fleet, Dispatcher: f.known, Store: f.ledger, Log: testlog.New(f.t), Rand: func() uint64 { return 7 },
	})
	f.hub = New(Options{
		Fleet: f.Fleet, Dispatcher: f.known, Claims: f.claims, LastKnown: f.known, Feeds: f, Log: testlog.New(f.t),
	})
}

// restart ends the hub process and starts another.
func (f *federation) restart() {
	f.claims.Close()
	f.start()
}

func (f *federation) create(r *sandboxv1.CreateSandboxRequest) *sandboxv1.Sandbox {
	f.t.Helper()
	return workertest.Create(f.t, f.claims, r)
}

func reasonOf(err error) problem.Reason { return problem.FromError(err).Reason }
