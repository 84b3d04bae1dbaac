// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"testing/synctest"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/router"
)

// TestI12ARevokedCertificateQuarantinesNoCluster: who has it knows the uid, and says hello as two clusters that take turns, at the replica
// of the cluster that was invited again and at another one.
func TestI12ARevokedCertificateQuarantinesNoCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFleet(t, &memoryRegistry{}), newFleet(t, &memoryRegistry{})
		wires := []*wire{newWire(t, a, b, "a"), newWire(t, b, a, "b")}
		east := newOwner(t, "east", pool(env(0), 1))
		east.key = "stolen"
		for _, f := range []*Fleet{b, a} {
			east.connect(f)
			settle(wires...)
			operate(t, f.Revoke, "east")
			must.Succeed(t, f.Admit(t.Context(), Admission{ClusterID: "east", UID: east.uid, Key: "issued", Invited: true}))
		}
		east.key = "issued"
		east.connect(a)
		settle(wires...)
		thieves := []*owner{newOwner(t, "east"), newOwner(t, "east")}
		for i, thief := range thieves {
			thief.key, thief.term = "stolen", string(rune('A'+i))
		}
		for range 5 {
			for i, thief := range thieves {
				for _, f := range []*Fleet{a, b} {
					if got := thief.refusal(f); got != string(RefusedRevoked) {
						t.Fatalf("the thief %d was refused with %q", i, got)
					}
				}
			}
			settle(wires...)
			time.Sleep(time.Second)
			east.heartbeat()
		}
		if health, _ := a.Health("east"); ended(east.session) || health != router.Fresh {
			t.Errorf("the cluster is %s, its stream has ended: %t", health, ended(east.session))
		}
		east.connect(a)
		settle(wires...)
		wantTruth(t, b, east)
	})
}

// Revoking a cluster that is attached to another replica ends no other cluster's session there.
func TestRevokingElsewhereEndsNoOtherSession(t *testing.T) {
	a, b := newFleet(t, &memoryRegistry{}), newFleet(t, &memoryRegistry{})
	wires := []*wire{newWire(t, a, b, "a"), newWire(t, b, a, "b")}
	connected(t, a, "east", pool(env(0), 1))
	connected(t, a, "west", pool(env(0), 1))
	settle(wires...)
	operate(t, b.Revoke, "east")
	if s := b.cluster("west").session.Load(); s == nil || ended(s) {
		t.Error("the session of another cluster has ended")
	}
	if b.Revokes("") {
		t.Error("a certificate whose key is not known counts as revoked")
	}
}
