// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/router"
)

// twoReplicas have two clusters with so many idle Pods each: east is attached to a, west to b.
func twoReplicas(t *testing.T, idle int32) (a, b *Fleet, east *owner, wires []*wire) {
	a, b = newFleet(t, &memoryRegistry{}), newFleet(t, &memoryRegistry{})
	east = connected(t, a, "east", pool(env(0), idle))
	connected(t, b, "west", pool(env(0), idle))
	wires = []*wire{newWire(t, a, b, "a"), newWire(t, b, a, "b")}
	settle(wires...)
	return a, b, east, wires
}

// TestTwoReplicasChooseDifferentLastPods: a claim of one replica for a last Pod keeps the others away from it, until it is cancelled, a
// report covers it, or its replica is gone.
func TestTwoReplicasChooseDifferentLastPods(t *testing.T) {
	a, b, _, wires := twoReplicas(t, 1)
	choose := func(f *Fleet) (string, *Reservation) {
		t.Helper()
		view, d := f.pick(env(0), &router.Request{}, 0)
		if !d.OK() || !d.Tier.Idle() {
			return "", nil
		}
		id, r := view.Candidate(d.Index).Cluster.ID, f.Reserve(view, d.Index)
		settle(wires...)
		return id, &r
	}
	first, r1 := choose(a)
	second, r2 := choose(b)
	if first == "" || second == "" || first == second {
		t.Fatalf("one replica chooses %q, the other one %q", first, second)
	}
	if third, _ := choose(a); third != "" {
		t.Errorf("both Pods are taken, and a claim is sent to %s", third)
	}
	r2.Cancel()
	settle(wires...)
	third, r3 := choose(a)
	if third != second {
		t.Errorf("after a cancel at the other replica %q is chosen, want %s", third, second)
	}
	r1.Cancel()
	r3.Cancel()
	settle(wires...)
	_, r4 := choose(b)
	_, r5 := choose(b)
	if none, _ := choose(a); none != "" || r4 == nil || r5 == nil {
		t.Fatalf("both Pods are taken, and a claim is sent to %q", none)
	}
	wires[1].cut() // b is gone
	if back, _ := choose(a); back == "" {
		t.Error("the claims of a replica that is gone are deducted")
	}
}

// TestHintsEndWithTheReport: what a report covers is deducted nowhere.
func TestHintsEndWithTheReport(t *testing.T) {
	a, b, east, wires := twoReplicas(t, 3)
	view := a.View(env(0))
	at := -1
	for i := range view.Len() {
		if view.Candidate(i).Cluster.ID == "east" {
			at = i
		}
	}
	inFlight := func(f *Fleet) int32 {
		settle(wires...)
		cell, _ := cellOf(f.View(env(0)), hintKey{"east", env(0), "pool"})
		return cell.Load()
	}
	r := a.Reserve(view, at)
	if n := inFlight(b); n != 1 {
		t.Errorf("the peer deducts %d, want 1", n)
	}
	late := newWire(t, a, newFleet(t, &memoryRegistry{}), "late") // a replica that comes later is told as well
	for late.step() {
	}
	r.Settle(a.cluster("east").order.Sequence + 1)
	if n := inFlight(b); n != 1 {
		t.Errorf("before the report the peer deducts %d, want 1", n)
	}
	east.change(pool(env(0), 2))
	if here, there := inFlight(a), inFlight(b); here != 0 || there != 0 {
		t.Errorf("after the report %d are deducted, and %d at the peer", here, there)
	}
	if n := len(a.shares.own); n != 0 {
		t.Errorf("%d members are remembered", n)
	}
	if n := ofMany(t, a, b, wires); n != 0 {
		t.Errorf("with many idle Pods the peer is told of %d claims", n)
	}
}

// ofMany reserves where many idle Pods are, and returns what a peer deducts.
func ofMany(t *testing.T, a, b *Fleet, wires []*wire) int32 {
	connected(t, a, "many", pool(env(1), 100))
	settle(wires...)
	view := a.View(env(1))
	r := a.Reserve(view, 0)
	defer r.Cancel()
	settle(wires...)
	cell, _ := cellOf(b.View(env(1)), hintKey{"many", env(1), "pool"})
	return cell.Load()
}

// TestPoisonedHintsCostAHop: whatever a peer says about its claims, a claim is still sent somewhere, nothing is kept for what is not
// there, and the peer's end takes all of it back.
func TestPoisonedHintsCostAHop(t *testing.T) {
	_, b, _, wires := twoReplicas(t, 1)
	poison := func(members ...*federationv1.RelayMemberClaims) {
		t.Helper()
		_, _, err := wires[0].inlet.Take(&federationv1.RelayFrame{Body: &federationv1.RelayFrame_Claims{
			Claims: &federationv1.RelayClaims{Members: members},
		}})
		must.Succeed(t, err)
	}
	lie := func(cluster string, claims uint32) *federationv1.RelayMemberClaims {
		return &federationv1.RelayMemberClaims{ClusterId: cluster, Namespace: env(0).Namespace, Env: env(0).Name, Pool: "pool", Claims: claims}
	}
	for range 3 {
		poison(lie("east", 1<<32-1), lie("west", 1<<31), lie("nowhere", 7), lie("", 0), &federationv1.RelayMemberClaims{Claims: 1}, nil)
	}
	if n := len(wires[0].inlet.hinted); n != 2 {
		t.Errorf("%d members are remembered, want 2", n)
	}
	if _, d := b.pick(env(0), &router.Request{}, 0); !d.OK() || d.Tier != router.CanQueue {
		t.Errorf("with lies about every member: %s, %s", d.Tier, d.Reason)
	}
	poison(lie("east", 0))
	if _, d := b.pick(env(0), &router.Request{}, 0); !d.Tier.Idle() {
		t.Errorf("after a correction: %s, %s", d.Tier, d.Reason)
	}
	wires[0].inlet.Close()
	view := b.View(env(0))
	for i := range view.Len() {
		if c := view.Candidate(i); c.InFlight.Load() != 0 {
			t.Errorf("%s: %d are deducted after the peer's end", c.Cluster.ID, c.InFlight.Load())
		}
	}
}
