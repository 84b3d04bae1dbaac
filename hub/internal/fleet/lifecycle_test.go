// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/router"
)

// operate makes a change of one cluster, which must succeed.
func operate(t testing.TB, change func(context.Context, string) (*sandboxv1.Cluster, error), id string) {
	t.Helper()
	_, err := change(t.Context(), id)
	must.Succeed(t, err)
}

// picked is the cluster that a claim for env(0) goes to, or why there is none.
func picked(f *Fleet, req *router.Request, random uint64) string {
	view, d := f.pick(env(0), req, random)
	if !d.OK() {
		return string(d.Reason)
	}
	return view.Candidate(d.Index).Cluster.ID
}

// refusal is why a cluster's next stream is refused; empty if it is not.
func (o *owner) refusal(f *Fleet) string {
	session, _, refused := f.Connect(Peer{ClusterID: o.id, Key: o.key}, o.nextHello())
	if session != nil {
		session.Close()
	}
	return refused.GetReason()
}

// TestADrainingClusterGetsNoNewClaims and loses nothing else, over a restart of the hub as well.
func TestADrainingClusterGetsNoNewClaims(t *testing.T) {
	registry := &memoryRegistry{}
	f := newFleet(t, registry)
	east := connected(t, f, "east", pool(env(0), 9))
	connected(t, f, "west", pool(env(0), 1))
	pick := func(f *Fleet) string { return picked(f, &router.Request{}, 1) }
	shown, err := f.Drain(t.Context(), "east")
	if err != nil || shown.GetState() != sandboxv1.ClusterState_DRAINING {
		t.Fatalf("draining: %v %v", shown, err)
	}
	if got := pick(f); got != "west" {
		t.Errorf("a claim goes to %s", got)
	}
	east.change(pool(env(0), 10))
	wantTruth(t, f, east)
	if f.cluster("east").stale() {
		t.Error("other clusters are told that its segments are old")
	}

	f = newFleet(t, registry)
	east.connect(f)
	if got := pick(f); got != string(router.ClusterDraining) {
		t.Errorf("after a restart: %s", got)
	}
	if shown, err = f.Undrain(t.Context(), "east"); err != nil || shown.GetState() != sandboxv1.ClusterState_FRESH || pick(f) != "east" {
		t.Errorf("undrained: %v %v, a claim goes to %s", shown, err, pick(f))
	}
	if _, err := f.Drain(t.Context(), "north"); !errors.Is(err, ErrNoCluster) {
		t.Errorf("draining no cluster: %v", err)
	}
}

// TestI4AForgottenClusterLeavesEveryView at once, without any other event: also the views of clusters that are away, when they
// return, to this hub or the next.
func TestI4AForgottenClusterLeavesEveryView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := &memoryRegistry{}
		f := newFleet(t, registry)
		east, west := connected(t, f, "east", pool(env(0), 1)), connected(t, f, "west", pool(env(0), 1))
		north := connected(t, f, "north", pool(env(0), 1))
		there, away := newReceiver(t, west), newReceiver(t, north)
		there.drain()
		away.drain()
		there.wantForeign(east, north)
		north.session.Close()
		if _, err := f.Forget(t.Context(), "east"); !errors.Is(err, ErrServing) {
			t.Fatalf("forgetting a cluster that takes claims: %v", err)
		}
		east.session.Close()
		shown, err := f.Forget(t.Context(), "east")
		if err != nil || shown.GetState() != sandboxv1.ClusterState_FORGOTTEN {
			t.Fatalf("forgetting: %v %v", shown, err)
		}
		there.drain()
		there.wantForeign(north)
		if got := f.ClusterIDs(); !slices.Equal(got, []string{"north", "west"}) || f.Cluster("east") != nil {
			t.Errorf("clusters %v", got)
		}
		if view := f.View(env(0)); view.Len() != 2 {
			t.Errorf("the router sees %d members", view.Len())
		}
		f = newFleet(t, registry) // north learns of it from a hub that never had the cluster
		north.connect(f)
		away.drain()
		away.wantForeign(west) // of which it says nothing yet
	})
}

// TestAForgottenClusterIsRefused, and no cluster that lost the name gets in under it.
func TestAForgottenClusterIsRefused(t *testing.T) {
	registry := &memoryRegistry{}
	f := newFleet(t, registry)
	east := connected(t, f, "east", pool(env(0), 1))
	operate(t, f.Drain, "east")
	operate(t, f.Forget, "east") // attached, but drained
	if !ended(east.session) {
		t.Error("its stream goes on")
	}
	if east.change(pool(env(0), 5)) != nil || f.View(env(0)) != nil {
		t.Error("its stream is believed")
	}
	if !f.Forgotten("east", east.uid) || !f.Forgotten("east", "") || f.Forgotten("east", "other") {
		t.Error("what was forgotten is not told right")
	}
	f = newFleet(t, registry)
	if got := east.refusal(f); got != string(RefusedForgotten) {
		t.Errorf("it comes back: %q", got)
	}
	clone := newOwner(t, "east")
	clone.uid, clone.term, clone.incarnation = east.uid, "clone", 99
	if got := clone.refusal(f); got != string(RefusedForgotten) {
		t.Errorf("a clone of it: %q", got)
	}
	clone.uid = "invented"
	if got := clone.refusal(f); got != string(RefusedForgotten) {
		t.Errorf("it comes back with an invented uid: %q", got)
	}

	operate(t, f.ReleaseName, "east")
	f = newFleet(t, registry)
	if got := east.refusal(f); got != string(RefusedForgotten) {
		t.Errorf("it comes back to a name that was released: %q", got)
	}
	successor := newOwner(t, "east", pool(env(0), 2))
	successor.uid, successor.term = "uid-successor", "successor"
	successor.connect(f) // with incarnation 1 and sequence 1, like the previous one
	wantTruth(t, f, successor)
	if got := east.refusal(f); got != string(IdentityMismatch) {
		t.Errorf("it comes back to a taken name: %q", got)
	}
	if f.Registration("east") != successor.uid || !f.Forgotten("east", east.uid) || f.Forgotten("east", "") ||
		f.Forgotten("east", successor.uid) {
		t.Error("the successor is taken for the one that was forgotten")
	}
}

// TestAForgottenClusterMayRegisterAgain once an operator permits it, and then nothing from before is believed.
func TestAForgottenClusterMayRegisterAgain(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	east := newOwner(t, "east")
	east.incarnation = 7
	east.connect(f)
	east.session.Close()
	operate(t, f.Forget, "east")
	operate(t, f.Undrain, "east")
	if f.Forgotten("east", east.uid) {
		t.Error("it still counts as forgotten")
	}
	old := newOwner(t, "east")
	session, welcome := old.hail(f, old.nextHello())
	if welcome.GetHighestIncarnation() != 7 {
		t.Fatalf("welcomed with %v", welcome)
	}
	if err := session.Begin(&federationv1.Begin{Incarnation: 2}); !errors.Is(err, ErrIncarnation) {
		t.Errorf("an older incarnation: %v", err)
	}
	east.newTerm("again")
	east.connect(f)
	if f.Registration("east") != east.uid {
		t.Error("it is not registered")
	}
}

// TestForgettingThatCannotBeRecordedChangesNothing: a full disk leaves the cluster as it is.
func TestForgettingThatCannotBeRecordedChangesNothing(t *testing.T) {
	registry := &memoryRegistry{}
	f := newFleet(t, registry)
	east := connected(t, f, "east", pool(env(0), 1))
	east.session.Close()
	registry.mu.Lock()
	registry.fail = errors.New("disk full")
	registry.mu.Unlock()
	if _, err := f.Forget(t.Context(), "east"); err == nil {
		t.Fatal("forgotten")
	}
	wantTruth(t, f, east)
	if f.Registration("east") != east.uid {
		t.Error("its registration is gone")
	}
}

// TestASuccessorIsNotMeasuredByTheOneBefore: its reports and the claims that it names start from zero, in the same hub process.
func TestASuccessorIsNotMeasuredByTheOneBefore(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	east := connected(t, f, "east")
	for n := range int32(5) {
		east.change(pool(env(0), n+1))
	}
	f.NamedUnsent("east", 3)
	if got := f.Cluster("east").GetMessage(); !strings.Contains(got, "named 3 claims") {
		t.Errorf("its message is %q", got)
	}
	east.session.Close()
	operate(t, f.Forget, "east")
	operate(t, f.ReleaseName, "east")
	successor := newOwner(t, "east", pool(env(1), 2))
	successor.uid, successor.term = "uid-successor", "successor"
	successor.connect(f)
	wantTruth(t, f, successor)
	if got := f.Cluster("east").GetMessage(); strings.Contains(got, "named") {
		t.Errorf("its successor's message is %q", got)
	}
}

// TestForgettingRevokesTheCertificatesKey under every name, over a restart of the hub, until it is reverted.
func TestForgettingRevokesTheCertificatesKey(t *testing.T) {
	registry := &memoryRegistry{}
	f := newFleet(t, registry)
	connect := func(id, uid, key string, stream uint64) (*Session, string) {
		hello := &federationv1.Hello{Protocol: 1, ClusterUid: uid, Term: id + uid, Stream: stream}
		s, _, refused := f.Connect(Peer{ClusterID: id, Key: key}, hello)
		return s, refused.GetReason()
	}
	east, _ := connect("east", "u1", "first", 1)
	east.Close()
	east, _ = connect("east", "u1", "renewed", 2)
	other, _ := connect("other", "u2", "first", 1) // a certificate for another name with the same key
	east.Close()
	operate(t, f.Forget, "east")
	if !ended(other) {
		t.Error("a stream with its key goes on under another name")
	}
	check := func(when string, want map[[3]string]string) {
		t.Helper()
		for who, reason := range want {
			stream := uint64(time.Now().UnixNano())
			s, got := connect(who[0], who[1], who[2], stream)
			if got != reason {
				t.Errorf("%s, cluster %s of uid %s with key %q: %q, want %q", when, who[0], who[1], who[2], got, reason)
			}
			if s != nil {
				s.Close()
			}
		}
	}
	for _, when := range []string{"at once", "after a restart"} {
		check(when, map[[3]string]string{
			{"east", "u1", "renewed"}: "Forgotten", {"east", "invented", "renewed"}: "Forgotten", {"east", "invented", "new"}: "Forgotten",
			{"other", "u2", "first"}: "Forgotten", {"third", "u3", "renewed"}: "Forgotten", {"other", "u2", "own"}: "", {"fourth", "u4", ""}: "",
		})
		f = newFleet(t, registry)
	}
	operate(t, f.ReleaseName, "east")
	check("released", map[[3]string]string{
		{"east", "u1", "new"}: "Forgotten", {"east", "u5", "renewed"}: "Forgotten", {"other", "u2", "first"}: "Forgotten",
	})
	operate(t, f.Undrain, "east")
	check("taken back", map[[3]string]string{{"east", "u1", "renewed"}: "", {"other", "u2", "first"}: ""})
	if _, err := f.ReleaseName(t.Context(), "east"); !errors.Is(err, ErrNoCluster) {
		t.Errorf("releasing a name that is taken: %v", err)
	}
}

// TestARevokedClusterSaysSo until it joins again; because its silence looks like a worker that is down.
func TestARevokedClusterSaysSo(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	connect := func(key string, stream uint64) {
		t.Helper()
		hello := &federationv1.Hello{Protocol: 1, ClusterUid: "u1", Term: "t", Stream: stream}
		s, _, refused := f.Connect(Peer{ClusterID: "east", Key: key}, hello)
		if s == nil {
			t.Fatal(refused)
		}
		t.Cleanup(s.Close)
	}
	told := func() bool { return f.Cluster("east").GetRevoked() }
	if connect("first", 1); told() {
		t.Error("a cluster is revoked that was not")
	}
	if c, err := f.Revoke(t.Context(), "east"); err != nil || !c.GetRevoked() || !strings.Contains(c.GetMessage(), "revoked: ") || !told() {
		t.Errorf("%v, %v", c, err)
	}
	err := f.Admit(t.Context(), Admission{ClusterID: "east", UID: "u1", Key: "second", Invited: true})
	if connect("second", 2); err != nil || told() {
		t.Errorf("after it has joined again: %v, %v", f.Cluster("east"), err)
	}
}

// TestI15AClusterDrawsNoClaimsThatItMayNotServe: whatever it reports, by its namespaces, teams and Envs; its segments are shown, and the
// scope outlasts a restart.
func TestI15AClusterDrawsNoClaimsThatItMayNotServe(t *testing.T) {
	registry := &memoryRegistry{}
	f := newFleet(t, registry)
	east := connected(t, f, "east", pool(env(0), 1000))
	connected(t, f, "west", pool(env(0), 1))
	for _, c := range []struct {
		scope      *hubstate.Scope
		team, want string
	}{
		{nil, "red", "east"},
		{&hubstate.Scope{Namespaces: []string{"elsewhere"}}, "red", "west"},
		{&hubstate.Scope{Namespaces: []string{env(0).Namespace}}, "red", "east"},
		{&hubstate.Scope{Teams: []string{"blue"}}, "red", "west"},
		{&hubstate.Scope{Teams: []string{"blue"}}, "", "west"},
		{&hubstate.Scope{Teams: []string{"blue"}}, "blue", "east"},
		{&hubstate.Scope{Envs: []string{env(0).Namespace + "/other"}}, "red", "west"},
		{&hubstate.Scope{Envs: []string{env(0).Namespace + "/" + env(0).Name}}, "red", "east"},
		{&hubstate.Scope{Namespaces: []string{env(0).Namespace}, Teams: []string{"blue"}}, "red", "west"},
	} {
		_, err := f.SetScope(t.Context(), "east", c.scope)
		must.Succeed(t, err)
		if got := picked(f, &router.Request{Team: c.team}, 0); got != c.want {
			t.Errorf("scope %v: a claim of team %q goes to %s, want %s", c.scope, c.team, got, c.want)
		}
	}
	if shown := f.Env(env(0)); len(shown.GetClusters()) != 2 {
		t.Errorf("shown are %v", shown)
	}
	f = newFleet(t, registry)
	east.connect(f)
	if got := picked(f, &router.Request{Team: "red"}, 0); got != string(router.NotServed) {
		t.Errorf("after a restart: %s", got)
	}
}
