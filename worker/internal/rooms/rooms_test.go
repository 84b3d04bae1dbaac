// SPDX-License-Identifier: Apache-2.0

package rooms_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/allotpolicy"
	"navix.sh/atoll/worker/internal/rooms"
)

var env = types.NamespacedName{Namespace: "agents", Name: "python"}

// newRooms are of a cluster with one Env, in incarnation 1, for a hub that divides.
func newRooms(t *testing.T) *rooms.Rooms {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, v1alpha1.AddToScheme(scheme))
	cache := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&v1alpha1.SandboxEnv{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace, Name: env.Name},
	}).Build()
	r := rooms.New(cache, clock.RealClock{})
	r.Switch(true)
	r.Begin(1)
	return r
}

func look(r *rooms.Rooms, held int32) {
	r.Observe(env, map[string]allotpolicy.Observation{"all": {Holding: allotpolicy.Holding{Present: true, Max: 6, Held: held}}})
}

func allot(t *testing.T, r *rooms.Rooms, number uint64, room int32) *federationv1.AllotResult {
	t.Helper()
	got, err := r.Allot(t.Context(), &federationv1.AllotCall{Epoch: 1, Number: number, Incarnation: 1, Rooms: []*federationv1.Room{
		{Namespace: env.Namespace, Env: env.Name, Group: "all", Room: room},
	}})
	must.Succeed(t, err)
	return got
}

// An Env that was not looked at is told as unknown.
func TestUnknownEnvsAreTold(t *testing.T) {
	r := newRooms(t)
	if got := allot(t, r, 1, 3); len(got.GetUnknown()) != 1 || len(got.GetHoldings()) != 0 {
		t.Errorf("before the first look: %v", got)
	}
	look(r, 2)
	if got := allot(t, r, 2, 3); len(got.GetUnknown()) != 0 || len(got.GetHoldings()) != 1 || got.GetHoldings()[0].GetHeld() != 2 {
		t.Errorf("after it: %v", got)
	}
}

// A growth that was promised counts as held until the next look; one past a room that has shrunk is refused.
func TestAPromiseCounts(t *testing.T) {
	r, woken := newRooms(t), 0
	r.OnChange(func(types.NamespacedName) { woken++ })
	look(r, 1)
	k := rooms.KeyOf(env, "all")
	if r.Promise(k, 2) {
		t.Error("a group grows without a room")
	}
	allot(t, r, 1, 4)
	if *r.Room(k) != 4 || woken != 1 || !r.Promise(k, 4) {
		t.Errorf("the room is %d, told %d times, or cannot be used", *r.Room(k), woken)
	}
	if got := allot(t, r, 2, 2); got.GetHoldings()[0].GetHeld() != 4 {
		t.Errorf("while the growth is under way: %v", got)
	}
	if r.Promise(k, 5) {
		t.Error("a group grows past its room")
	}
	look(r, 4)
	if got := allot(t, r, 3, 2); got.GetHoldings()[0].GetHeld() != 4 {
		t.Errorf("after it: %v", got)
	}
	r.Switch(false)
	if r.Room(k) != nil {
		t.Error("there is a limit, and the hub divides nothing")
	}
}

// I14: what a hub sends is bounded.
func TestI14CallsAreBounded(t *testing.T) {
	r := newRooms(t)
	many := make([]*federationv1.Room, rooms.MaxGroups+1)
	if _, err := r.Allot(t.Context(), &federationv1.AllotCall{Incarnation: 1, Rooms: many}); err == nil {
		t.Error("any number of rooms is taken")
	}
	if _, err := r.Allot(t.Context(), &federationv1.AllotCall{Incarnation: 1, Rooms: []*federationv1.Room{{Room: -1}}}); err == nil {
		t.Error("a negative room is taken")
	}
	less := int32(-1)
	if _, err := r.Allot(t.Context(), &federationv1.AllotCall{Incarnation: 1, Rooms: []*federationv1.Room{{Floor: &less}}}); err == nil {
		t.Error("a negative floor is taken")
	}
	if _, err := r.Allot(t.Context(), &federationv1.AllotCall{Incarnation: 2}); err == nil {
		t.Error("rooms of another incarnation are taken")
	}
}
