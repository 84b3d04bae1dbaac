// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/router"
)

// A report belongs to its certificate's cluster, whatever it contains: two clusters send the same bytes, and each changes only
// its own part.
func TestI12AReportBelongsToTheClusterOfItsCertificate(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	east, west := connected(t, f, "east", envs(3)...), connected(t, f, "west", envs(3)...)
	// north's stream sends all that east's stream sends: uid, term, incarnation, and a higher stream number.
	stolen := east.hello()
	stolen.Stream = 99
	impostor, welcome, refused := f.Connect(Peer{ClusterID: "north"}, stolen)
	if refused != nil || welcome.GetClusterId() != "north" || impostor.ClusterID() != "north" {
		t.Fatalf("welcome %v, refused %v", welcome, refused)
	}
	must.Succeed(t, impostor.Begin(&federationv1.Begin{Incarnation: east.incarnation}))
	impostor.Report(&federationv1.Report{Sequence: 999, Last: true, Complete: true,
		Segments: []*federationv1.EnvSegment{pool(env(0), 9).Proto()}})
	impostor.Report(&federationv1.Report{Sequence: 1000, Last: true, Removed: []*federationv1.EnvKey{env(0).Proto(), env(1).Proto()}})
	for _, o := range []*owner{east, west} {
		wantTruth(t, f, o)
	}
	if f.Env(env(0)).GetClusters()[0].GetClusterId() != "east" || held(f, "north").Len() != 0 {
		t.Error("the reports did not count for the cluster of their certificate alone")
	}
	if ended(east.session) {
		t.Error("the other cluster's stream was replaced")
	}
	if ack := east.change(pool(env(0), 2)); ack == nil || ack.GetSendComplete() {
		t.Errorf("the other cluster's report was answered %v", ack)
	}
}

// A name is bound to the first cluster's uid, across restarts of the hub, and another's attempts do not affect it.
func TestI12AnotherClusterUnderATakenNameIsRefused(t *testing.T) {
	registry := &memoryRegistry{}
	f := newFleet(t, registry)
	o := connected(t, f, "east", envs(3)...)
	thief := newOwner(t, "east")
	thief.uid, thief.term, thief.incarnation = "another", "thief", 1000
	for range 20 {
		if got := thief.refusal(f); got != string(IdentityMismatch) {
			t.Fatalf("the thief was refused with %q", got)
		}
	}
	if health := f.cluster("east").Health(); health != router.Fresh {
		t.Errorf("the owner of the name is %s", health)
	}
	o.connect(f) // a reconnect between the thief's attempts
	wantTruth(t, f, o)
	f = newFleet(t, registry)
	if got := thief.refusal(f); got != string(IdentityMismatch) {
		t.Errorf("after a restart of the hub the thief was refused with %q", got)
	}
	o.newTerm("restarted")
	o.connect(f)
	wantTruth(t, f, o)
}

func TestANameThatCannotBeRecordedIsNotGiven(t *testing.T) {
	registry := &memoryRegistry{fail: errors.New("disk full")}
	f, o := newFleet(t, registry), newOwner(t, "east")
	if got := o.refusal(f); got != string(RegistryUnavailable) {
		t.Fatalf("refused with %q", got)
	}
	if f.Cluster("east") != nil || len(f.Clusters()) != 0 || len(f.ClusterIDs()) != 0 {
		t.Error("a cluster that was refused is shown")
	}
	registry.fail = nil
	o.attach(f)
	registry.fail = errors.New("disk full")
	if err := o.session.Begin(&federationv1.Begin{Incarnation: 9}); err == nil {
		t.Error("an incarnation that could not be recorded began")
	}
}

func TestANewerStreamReplacesTheOlder(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	o := connected(t, f, "east", envs(3)...)
	first := o.session
	o.connect(f)
	if !ended(first) {
		t.Fatal("the first stream does not know that it was replaced")
	}
	if ack := first.Report(&federationv1.Report{Sequence: 1000, Last: true, Complete: true}); ack != nil {
		t.Errorf("the replaced stream's report was answered %v", ack)
	}
	first.Close() // late; must not detach the second
	first.NoReceipt()
	if health := f.cluster("east").Health(); health != router.Fresh {
		t.Errorf("closing the replaced stream left the cluster %s", health)
	}
	wantTruth(t, f, o)
	o.stream = 0
	if got := o.refusal(f); got != string(OlderStream) {
		t.Errorf("a late attempt was refused with %q", got)
	}
}

// Two clusters restored from one etcd have the same uid; both raise their incarnation to get in.
func TestTwoThatAlternateAreBothQuarantined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		twins := []*owner{newOwner(t, "east"), newOwner(t, "east")}
		twins[1].term = "the twin"
		quarantined := ""
		for i := range 10 {
			o := twins[i%2]
			o.incarnation = uint64(i + 1)
			s, _, refused := f.Connect(Peer{ClusterID: "east"}, o.nextHello())
			if refused != nil {
				quarantined = refused.GetReason()
				break
			}
			must.Succeed(t, s.Begin(&federationv1.Begin{Incarnation: o.incarnation}))
			o.session = s
			time.Sleep(2 * time.Second)
		}
		if quarantined != string(RefusedQuarantined) {
			t.Fatalf("refused with %q", quarantined)
		}
		for _, o := range twins {
			if <-o.session.Replaced(); o.refusal(f) != string(RefusedQuarantined) {
				t.Error("one of the two may come back")
			}
		}
		if got := f.Cluster("east").GetState(); got != sandboxv1.ClusterState_QUARANTINED {
			t.Errorf("the cluster is shown as %s", got)
		}
		// One is stopped. The other is admitted once the two have not met for a while.
		for range 4 {
			time.Sleep(time.Minute)
			if got := twins[0].refusal(f); got != string(RefusedQuarantined) {
				t.Fatalf("let in too early: %q", got)
			}
		}
		time.Sleep(2 * time.Minute)
		twins[0].connect(f)
		if health := f.cluster("east").Health(); health != router.Fresh {
			t.Errorf("after the quarantine the cluster is %s", health)
		}
	})
}

// A copy that raised its incarnation once stays, and so does the original, which is refused: nothing alternates.
func TestACopyThatTookOverIsFoundByTheOriginal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		original, twin := newOwner(t, "east"), newOwner(t, "east")
		original.connect(f)
		time.Sleep(2 * contactWindow)
		twin.term, twin.incarnation = "the twin", original.incarnation+1
		twin.connect(f)
		for i, want := range []Refusal{OlderStream, OlderStream, RefusedQuarantined} {
			if got := original.refusal(f); got != string(want) {
				t.Fatalf("attempt %d of the original: %q, want %q", i+1, got, want)
			}
			for range 15 {
				time.Sleep(time.Second)
				twin.heartbeat()
			}
		}
		if got := twin.refusal(f); got != string(RefusedQuarantined) {
			t.Errorf("the twin goes on: %q", got)
		}
	})
}

// The original asks one replica after the other, and the twin stays at one of them.
func TestACopyIsFoundByContactsWithAllReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fleets []*Fleet
		for range 3 {
			fleets = append(fleets, newFleet(t, &memoryRegistry{}))
		}
		var wires []*wire
		for i, from := range fleets {
			for j, to := range fleets {
				if i != j {
					wires = append(wires, newWire(t, from, to, string(rune('a'+i))))
				}
			}
		}
		original, twin := newOwner(t, "east"), newOwner(t, "east")
		original.connect(fleets[0])
		settle(wires...)
		time.Sleep(2 * contactWindow)
		twin.term, twin.incarnation = "the twin", original.incarnation+1
		twin.connect(fleets[1])
		settle(wires...)
		for i, want := range []Refusal{OlderStream, OlderStream, RefusedQuarantined} {
			if got := original.refusal(fleets[(2+i)%3]); got != string(want) {
				t.Fatalf("attempt %d of the original: %q, want %q", i+1, got, want)
			}
			for range 15 {
				settle(wires...)
				time.Sleep(time.Second)
				twin.heartbeat()
			}
		}
		if !ended(twin.session) {
			t.Error("the twin is still attached")
		}
		for i, f := range fleets {
			if got := f.Cluster("east").GetState(); got != sandboxv1.ClusterState_QUARANTINED {
				t.Errorf("replica %d shows the cluster as %s", i, got)
			}
			if got := twin.refusal(f); got != string(RefusedQuarantined) {
				t.Errorf("the twin goes on at replica %d: %q", i, got)
			}
		}
	})
}

// TestI10ContactsThatAPeerDoesNotReadAreBounded: a cluster may say hello without end.
func TestI10ContactsThatAPeerDoesNotReadAreBounded(t *testing.T) {
	a, b := newFleet(t, &memoryRegistry{}), newFleet(t, &memoryRegistry{})
	o := newOwner(t, "east")
	o.connect(a)
	w := newWire(t, a, b, "a")
	for range 10 * maxContacts {
		a.cluster("east").relayContact("uid", "the twin", true)
	}
	if n := len(w.relay.contacts[a.cluster("east")]); n != maxContacts {
		t.Errorf("%d contacts wait for the peer, want %d", n, maxContacts)
	}
	settle(w)
	if n := len(w.relay.contacts); n != 0 {
		t.Errorf("contacts of %d clusters wait after all were sent", n)
	}
}

func TestACrashLoopIsNoQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFleet(t, &memoryRegistry{}), newOwner(t, "east")
		for i := range 50 {
			o.newTerm(string(rune('A' + i)))
			o.connect(f)
			o.connect(f) // and its connection is bad as well
			time.Sleep(time.Second)
		}
	})
}

// TestEtcdRestoredUnderAStream is noticed by the heartbeat, and by the hello that follows.
func TestEtcdRestoredUnderAStream(t *testing.T) {
	f, o := newFleet(t, &memoryRegistry{}), newOwner(t, "east")
	o.connect(f)
	beat := func(number, rv uint64) bool {
		return o.session.Heartbeat(&federationv1.Heartbeat{
			Number: number, Sequence: o.sequence, Digest: o.truth.Digest(), ResourceVersion: rv,
		}).GetEtcdRestored()
	}
	for _, c := range []struct {
		number, rv uint64
		want       bool
	}{
		{1, 150, false}, {2, 150, false}, {4, 180, false},
		{3, 170, false}, {1, 150, false}, // overtaken, and repeated
		{5, 0, false},                  // the worker does not know
		{6, 179, true}, {7, 179, true}, // until a new term begins
	} {
		if got := beat(c.number, c.rv); got != c.want {
			t.Errorf("heartbeat %d at %d: %t", c.number, c.rv, got)
		}
	}
	o.newTerm("after")
	hello := o.nextHello()
	hello.ResourceVersion = 179
	if s, welcome := o.hail(f, hello); !welcome.GetEtcdRestored() || !s.EtcdRestored() {
		t.Errorf("welcome %v", welcome)
	}
}

func TestEtcdRestored(t *testing.T) {
	registry := &memoryRegistry{}
	f, o := newFleet(t, registry), newOwner(t, "east")
	o.connect(f)
	for range 50 {
		o.heartbeat() // to resourceVersion 150
	}
	f.saveRecords(t.Context())
	f = newFleet(t, registry)
	hello := func(rv uint64) *federationv1.Hello {
		h := o.nextHello()
		h.ResourceVersion = rv
		return h
	}
	for _, c := range []struct {
		rv    uint64
		begin bool
		want  bool
	}{
		{150, false, false}, {0, false, false}, // 0: the worker does not know
		{149, false, true}, {149, false, true}, // reported again until the worker begins
		{149, true, true}, {149, false, false}, {200, false, false},
	} {
		s, welcome, refused := f.Connect(Peer{ClusterID: "east"}, hello(c.rv))
		if refused != nil || welcome.GetEtcdRestored() != c.want {
			t.Fatalf("at %d: welcome %v, refused %v, want restored %v", c.rv, welcome, refused, c.want)
		}
		if c.begin {
			must.Succeed(t, s.Begin(&federationv1.Begin{Incarnation: o.incarnation}))
		}
	}
}
