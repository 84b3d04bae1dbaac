// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"slices"
	"sync"
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/workertest"
)

// returning is a fleet of a hub that has just started: the last cluster attaches once the service asks which are missing.
type returning struct {
	Fleet
	back func()
}

func (r returning) Awaited() []string {
	awaited := r.Fleet.Awaited()
	r.back()
	return awaited
}

// helloOf registers a cluster whose stream has not begun.
func helloOf(t *testing.T, f *federation, cluster string) *fleet.Session {
	t.Helper()
	session, _, refused := f.Fleet.Connect(fleet.Peer{ClusterID: cluster},
		&federationv1.Hello{Protocol: 1, ClusterUid: "uid-" + cluster, Term: "t1", Stream: 1})
	if refused != nil {
		t.Fatal(refused)
	}
	return session
}

// A claim that finds no idle Pod right after a restart does not queue in the one attached cluster until its deadline, while the
// others have room.
func TestAClaimAfterARestartWaitsForClustersRatherThanInAQueue(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 0})
	session := helloOf(t, f, "west")
	must.Succeed(t, session.Begin(&federationv1.Begin{Incarnation: 1}))
	if awaited := f.Fleet.Awaited(); !slices.Equal(awaited, []string{"west"}) {
		t.Fatalf("%v are awaited", awaited)
	}
	f.hub.fleet = returning{f.Fleet, sync.OnceFunc(func() {
		session.Close()
		f.JoinAs("west", 1, 2)
	})}
	if got := f.create(workertest.Request("k")); got.GetClusterId() != "west" {
		t.Errorf("the claim went to %s, want west", got.GetClusterId())
	}
}

// meeting is a fleet of a hub that has just started: one cluster says Hello only after the service has asked a few times.
type meeting struct {
	Fleet
	asks int
}

func (m *meeting) Unmet() []string {
	if m.asks == 0 {
		return nil
	}
	m.asks--
	return []string{"west"}
}

// The Hello of a cluster has the mark by which it remembers the store, so no claim waits for its report.
func TestI2AClaimWithAKeyWaitsForTheHelloOfEachCluster(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 1})
	helloOf(t, f, "west")
	if unmet := f.Fleet.Unmet(); len(unmet) != 0 {
		t.Errorf("after both Hellos %v are unmet", unmet)
	}
	met := &meeting{Fleet: f.Fleet, asks: 3}
	f.hub.fleet = met
	if got := f.create(workertest.Request("k")); got.GetClusterId() != "east" {
		t.Errorf("the claim went to %s, want east", got.GetClusterId())
	}
	if late := f.hub.clock.Since(f.hub.started) >= startPatience; met.asks > 0 || late {
		t.Errorf("the claim was served with %d asks left, want 0; after startPatience: %t, want before", met.asks, late)
	}
}
