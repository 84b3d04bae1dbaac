// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/store"
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
		if health := a.cluster("east").Health(); ended(east.session) || health != router.Fresh {
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

// certified is a peer of cluster east whose certificate of 30 days was issued so long ago.
func certified(key string, ago time.Duration) Peer {
	issued := time.Now().Add(-ago)
	return Peer{ClusterID: "east", Key: key, Issued: issued.Add(-link.Backdate), Expires: issued.Add(30 * 24 * time.Hour)}
}

// TestRevokingRefusesWhatWasIssuedBefore: certificates whose keys the record has dropped as well, over a restart of the hub, and none that
// was issued since.
func TestRevokingRefusesWhatWasIssuedBefore(t *testing.T) {
	registry := &memoryRegistry{}
	f := newFleet(t, registry)
	stream := uint64(0)
	connect := func(by Peer) string {
		stream++
		s, _, refused := f.Connect(by, &federationv1.Hello{Protocol: 1, ClusterUid: "u", Term: "t", Stream: stream})
		if s != nil {
			s.Close()
		}
		return refused.GetReason()
	}
	admit := func(key string, invited bool) {
		t.Helper()
		must.Succeed(t, f.Admit(t.Context(), Admission{ClusterID: "east", UID: "u", Key: key, Invited: invited}))
	}
	if got := connect(certified("0", 24*time.Hour)); got != "" {
		t.Fatal(got)
	}
	for i := range hubstate.MaxKeys + 1 {
		admit(fmt.Sprint(i), false)
	}
	operate(t, f.Revoke, "east")
	admit("again", true)
	for _, when := range []string{"at once", "after a restart"} {
		for _, c := range []struct {
			name string
			by   Peer
			want Refusal
		}{
			{"a key that was dropped", certified("0", 24*time.Hour), RefusedRevoked},
			{"a key that was not", certified("9", 24*time.Hour), RefusedRevoked},
			{"issued since", certified("again", 0), None},
			{"issued since by a clock that is late", certified("again", time.Hour), None},
			{"from files, issued since", certified("files", 0), None},
			{"from files, issued since by a clock that is late", certified("late", 9*time.Minute), None},
			{"from files, without times", Peer{ClusterID: "east", Key: "bare"}, None},
		} {
			if got, early := connect(c.by), f.Refusal(c.by); got != string(c.want) || early != c.want {
				t.Errorf("%s, %s: %q, before the hello %q, want %q", when, c.name, got, early, c.want)
			}
		}
		if other := certified("0", 24*time.Hour); f.Refuses(Peer{ClusterID: "west", Key: "other", Issued: other.Issued, Expires: other.Expires}) {
			t.Errorf("%s, a certificate of another cluster is refused", when)
		}
		f = newFleet(t, registry)
	}
}

// TestARenewalInFlightEndsWithItsCertificate: who asked before a revoke gets no other certificate after it, at the replica of the revoke
// and at one that has not heard of it. After an invitation it does again.
func TestARenewalInFlightEndsWithItsCertificate(t *testing.T) {
	s := store.NewMemory()
	a := newFleet(t, NewRegistry(s))
	first, again := certified("first", 24*time.Hour), certified("again", 0)
	_, _, refused := a.Connect(first, &federationv1.Hello{Protocol: 1, ClusterUid: "u", Term: "t", Stream: 1})
	if refused != nil {
		t.Fatal(refused)
	}
	b := newFleet(t, NewRegistry(s)) // it does not follow
	operate(t, a.Revoke, "east")
	for name, f := range map[string]*Fleet{"the replica of the revoke": a, "another one": b} {
		if err := f.Admit(t.Context(), Admission{ClusterID: "east", UID: "u", Key: "next", By: first}); !errors.Is(err, ErrRevoked) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, _, err := hubstate.LoadRecord(t.Context(), s, "east"); err != nil || len(r.Keys) > 0 {
		t.Errorf("the record has the keys %v, %v", r.Keys, err)
	}
	must.Succeed(t, a.Admit(t.Context(), Admission{ClusterID: "east", UID: "u", Key: "again", Invited: true}))
	must.Succeed(t, a.Admit(t.Context(), Admission{ClusterID: "east", UID: "u", Key: "next", By: again}))
}

// A stream at another replica whose key is not in the record yet ends as well.
func TestRevokingElsewhereEndsAStreamWithANewKey(t *testing.T) {
	inMemory(t, func(t *testing.T, a, b *Fleet, _ *store.Memory) {
		connect := func(key string, stream uint64) *Session {
			s, _, refused := b.Connect(certified(key, 24*time.Hour), &federationv1.Hello{Protocol: 1, ClusterUid: "u", Term: "t", Stream: stream})
			if refused != nil {
				t.Fatal(refused)
			}
			return s
		}
		connect("first", 1)
		synctest.Wait()
		s := connect("second", 2)
		operate(t, a.Revoke, "east")
		synctest.Wait()
		if !ended(s) {
			t.Error("the stream goes on")
		}
	})
}
