// SPDX-License-Identifier: Apache-2.0

package allotment

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/pkg/allotpolicy"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

const patience = 30 * time.Second

var group = allotpolicy.Key{Namespace: "agents", Env: "python", Group: "all"}

// federation is the fleet, and the way to its workers.
type federation struct {
	t     *testing.T
	store store.Store

	mu      sync.Mutex
	workers map[string]*worker
}

// worker is one cluster, with what a real worker decides by.
type worker struct {
	holder  *allotpolicy.Holder
	held    int32
	demand  int32
	least   int32 // its minReplicas
	state   sandboxv1.ClusterState
	cut     bool // not connected
	old     bool // of a build that knows no rooms
	refused bool // it may not serve the Env
	gone    bool // not registered
}

func newFederation(t *testing.T, s store.Store, ids ...string) *federation {
	f := &federation{t: t, store: s, workers: map[string]*worker{}}
	for _, id := range ids {
		w := &worker{holder: allotpolicy.NewHolder()}
		w.holder.Switch(true)
		w.holder.Begin(1)
		f.workers[id] = w
	}
	return f
}

func (f *federation) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *federation) ClusterIDs() (ids []string) {
	f.change(func() {
		for id, w := range f.workers {
			if !w.gone {
				ids = append(ids, id)
			}
		}
	})
	return ids
}

func (f *federation) Registration(id string) (uid string) {
	f.change(func() {
		if w := f.workers[id]; w != nil && !w.gone {
			uid = "uid-" + id
		}
	})
	return uid
}

func (f *federation) Cluster(id string) *sandboxv1.Cluster {
	if f.Registration(id) == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &sandboxv1.Cluster{Id: id, Uid: "uid-" + id, Incarnation: 1, State: f.workers[id].state, LastSeen: durationpb.New(time.Minute)}
}

func (f *federation) Serves(id string, _ segment.Key) (serves bool) {
	f.change(func() { serves = !f.workers[id].refused })
	return serves
}

func (f *federation) Env(segment.Key) *sandboxv1.Env {
	env := &sandboxv1.Env{}
	for _, id := range f.ClusterIDs() {
		f.change(func() {
			env.Clusters = append(env.Clusters, &sandboxv1.EnvCluster{ClusterId: id, Members: []*sandboxv1.EnvMember{
				{ScalingGroup: group.Group, Desired: f.workers[id].held},
			}})
		})
	}
	return env
}

// Dispatch is a worker's answer. What it is sent must be in the store.
func (f *federation) Dispatch(ctx context.Context, id string, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	records, err := loadRecords(ctx, f.store)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.workers[id]
	if w.cut {
		return nil, calls.ErrNotConnected
	}
	if w.old {
		return &federationv1.Answer{Error: calls.ErrorProto(problem.New(problem.Unimplemented, "this worker does not know the call"))}, nil
	}
	call := d.GetAllot()
	c := allotpolicy.Call{
		Epoch: call.GetEpoch(), Number: call.GetNumber(), Incarnation: call.GetIncarnation(), Rooms: map[allotpolicy.Key]int32{},
		Floors: map[allotpolicy.Key]int32{},
	}
	for _, r := range call.GetRooms() {
		k := allotpolicy.Key{Namespace: r.GetNamespace(), Env: r.GetEnv(), Group: r.GetGroup()}
		c.Rooms[k] = r.GetRoom()
		if r.Floor != nil {
			c.Floors[k] = r.GetFloor()
		}
		if stored := records[k].Shares[id].Most; stored < r.GetRoom() {
			f.t.Errorf("%s is sent room %d, and the store has %d", id, r.GetRoom(), stored)
		}
	}
	there := allotpolicy.Holding{Present: true, Max: 6, Min: w.least, Held: w.held, Demand: w.demand}
	w.holder.Observe(group, allotpolicy.Observation{Holding: there}, time.Now())
	a, _, err := w.holder.Take(c)
	if err != nil {
		return nil, err
	}
	out := &federationv1.AllotResult{Epoch: a.Epoch, Number: a.Number}
	for k, h := range a.Holdings {
		out.Holdings = append(out.Holdings, &federationv1.Holding{Namespace: k.Namespace, Env: k.Env, Group: k.Group,
			Max: h.Max, Min: h.Min, Held: h.Held, Demand: h.Demand})
	}
	return &federationv1.Answer{Result: &federationv1.Answer_Allotted{Allotted: out}}, nil
}

// run starts a service, which ends with the test, or before it.
func (f *federation) run(t *testing.T) (s *Service, stop func()) {
	t.Helper()
	s, err := New(Options{Store: f.store, Fleet: f, Calls: f, Clock: clock.RealClock{}, Log: testr.New(t)})
	must.Succeed(t, err)
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = func() { end(); <-done }
	t.Cleanup(stop)
	return s, stop
}

// rooms waits for the shares of all clusters: room, what may be held.
func (s *Service) rooms(t *testing.T, want map[string][2]int32) {
	t.Helper()
	wait.For(t, patience, fmt.Sprint(want), func(context.Context) error {
		got := map[string][2]int32{}
		for _, a := range s.Shares(segment.Key{Namespace: group.Namespace, Name: group.Env}) {
			for _, share := range a.GetShares() {
				got[share.GetClusterId()] = [2]int32{share.GetRoom(), share.GetMayHold()}
			}
		}
		return wait.If(fmt.Sprint(got) == fmt.Sprint(want), got)
	})
}

// TestI9RoomsAreStoredBeforeTheyAreSent: Dispatch compares. Room moves after its giver has shrunk; a cluster that is away keeps it, and so
// does one that was forgotten, until it is reclaimed. A hub that starts anew goes on.
func TestI9RoomsAreStoredBeforeTheyAreSent(t *testing.T) {
	f := newFederation(t, store.NewMemory(), "east", "west")
	s, stop := f.run(t)
	s.rooms(t, map[string][2]int32{"east": {3, 3}, "west": {3, 3}})
	f.change(func() { f.workers["west"].held, f.workers["east"].demand = 3, 6 })
	s.rooms(t, map[string][2]int32{"east": {3, 3}, "west": {0, 3}})
	f.change(func() { f.workers["west"].held = 1 })
	s.rooms(t, map[string][2]int32{"east": {5, 5}, "west": {0, 1}})
	f.change(func() { f.workers["east"].cut, f.workers["west"].demand = true, 6 })
	stop()
	s, _ = f.run(t)
	s.rooms(t, map[string][2]int32{"east": {5, 5}, "west": {1, 1}})
	f.change(func() { f.workers["east"].gone = true })
	s.rooms(t, map[string][2]int32{"east": {0, 5}, "west": {1, 1}})
	must.Succeed(t, s.Reclaim(t.Context(), "east"))
	s.rooms(t, map[string][2]int32{"west": {6, 6}})
}

// Of several replicas one divides, each shows it, and another one goes on when it ends.
func TestOneReplicaDivides(t *testing.T) {
	f := newFederation(t, store.NewMemory(), "east", "west")
	first, stop := f.run(t)
	half := map[string][2]int32{"east": {3, 3}, "west": {3, 3}}
	first.rooms(t, half)
	second, _ := f.run(t)
	second.rooms(t, half)
	f.change(func() { f.workers["east"].demand = 6 })
	moved := map[string][2]int32{"east": {6, 6}, "west": {0, 0}}
	first.rooms(t, moved)
	second.rooms(t, moved)
	stop()
	f.change(func() { f.workers["east"].demand, f.workers["west"].demand = 0, 4 })
	second.rooms(t, map[string][2]int32{"east": {1, 1}, "west": {5, 5}})
}

// TestI9AnEarlierLeaderWritesNothing: once another replica has begun.
func TestI9AnEarlierLeaderWritesNothing(t *testing.T) {
	s := store.NewMemory()
	first, err := begin(t.Context(), s)
	must.Succeed(t, err)
	second, err := begin(t.Context(), s)
	must.Succeed(t, err)
	change := func() allotpolicy.Change {
		lost := []allotpolicy.Lost{{Cluster: "east", Most: 1}}
		return allotpolicy.Change{Records: map[allotpolicy.Key]allotpolicy.Record{group: {Max: 6, Lost: lost}}}
	}
	none := func(allotpolicy.Change) { t.Error("what an earlier leader wrote counts") }
	if err := first.write(t.Context(), change(), none); err == nil {
		t.Error("an earlier leader writes")
	}
	applied := 0
	must.Succeed(t, second.write(t.Context(), change(), func(allotpolicy.Change) { applied++ }))
	records, err := loadRecords(t.Context(), s)
	must.Succeed(t, err)
	if len(records) != 1 || applied != 1 || second.epoch.Epoch != first.epoch.Epoch+1 {
		t.Errorf("the store has %v, written %d times; epochs %d and %d", records, applied, first.epoch.Epoch, second.epoch.Epoch)
	}
}

// Workers of an older build grow by maxReplicas alone: what they hold counts. A cluster that may not serve the Env gets nothing.
func TestClustersWithoutRooms(t *testing.T) {
	f := newFederation(t, store.NewMemory(), "east", "old", "other")
	f.workers["old"].old, f.workers["old"].held, f.workers["east"].demand = true, 4, 6
	f.workers["other"].refused, f.workers["other"].held = true, 5
	s, _ := f.run(t)
	s.rooms(t, map[string][2]int32{"east": {2, 2}})
}

// floors waits for what the clusters were told to keep, and for the replaced one.
func (f *federation) floors(t *testing.T, s *Service, want map[string]int32, replaced string) {
	t.Helper()
	wait.For(t, patience, fmt.Sprint("floors ", want, " without ", replaced), func(context.Context) error {
		told, away := map[string]int32{}, ""
		f.change(func() {
			for id, w := range f.workers {
				if floor := w.holder.Floor(group); floor != nil {
					told[id] = *floor
				}
			}
		})
		shown := s.Shares(segment.Key{Namespace: group.Namespace, Name: group.Env})
		for _, a := range shown {
			for _, share := range a.GetShares() {
				if share.GetReplaced() {
					away += share.GetClusterId()
				}
			}
		}
		return wait.If(maps.Equal(told, want) && away == replaced, fmt.Sprint(told, away, shown))
	})
}

// The others keep what a lost cluster kept, within their rooms, also when another replica goes on; no longer once it is back and holds it.
func TestOthersKeepTheFloorOfALostCluster(t *testing.T) {
	f := newFederation(t, store.NewMemory(), "east", "north", "west")
	for _, w := range f.workers {
		w.least = 3
	}
	s, stop := f.run(t)
	f.floors(t, s, map[string]int32{"east": 1, "north": 1, "west": 1}, "")
	lose := func(cut bool, state sandboxv1.ClusterState) {
		f.change(func() { f.workers["west"].cut, f.workers["west"].state = cut, state })
	}
	lose(true, sandboxv1.ClusterState_SUSPECT)
	s.rooms(t, map[string][2]int32{"east": {2, 2}, "north": {2, 2}, "west": {2, 2}})
	lose(true, sandboxv1.ClusterState_UNREACHABLE)
	f.floors(t, s, map[string]int32{"east": 2, "north": 1, "west": 1}, "west")
	stop()
	s, _ = f.run(t)
	f.change(func() { f.workers["north"].gone = true }) // what it kept is the others', and its room is burned
	f.floors(t, s, map[string]int32{"east": 2, "north": 1, "west": 1}, "west")
	lose(false, sandboxv1.ClusterState_FRESH)
	f.floors(t, s, map[string]int32{"east": 2, "north": 1, "west": 1}, "west")
	f.change(func() { f.workers["west"].held = 1 })
	f.floors(t, s, map[string]int32{"east": 2, "north": 1, "west": 1}, "")
}

// TestI10AForgottenClusterIsNotAsked: nothing is kept of it, and it is asked once it has joined again.
func TestI10AForgottenClusterIsNotAsked(t *testing.T) {
	f := newFederation(t, store.NewMemory(), "east", "old")
	f.workers["old"].old = true
	s, err := New(Options{Store: f.store, Fleet: f, Calls: f, Clock: clock.RealClock{}, Log: testr.New(t)})
	must.Succeed(t, err)
	ctx, end := context.WithTimeout(t.Context(), patience)
	defer end()
	l, err := s.begin(ctx, end)
	must.Succeed(t, err)
	for _, id := range []string{"east", "old"} {
		wake, fresh := l.enrol(id)
		if !fresh {
			t.Fatalf("%s is asked already", id)
		}
		must.Succeed(t, l.ask(ctx, id))
		f.change(func() { f.workers[id].gone = true })
		l.keepAsking(ctx, id, wake)
		if ctx.Err() != nil || l.division.Answering(id) || len(l.wakes)+len(l.unbound) > 0 {
			t.Fatalf("%s is forgotten, and asked until %v: goroutines %v, without rooms %v", id, ctx.Err(), l.wakes, l.unbound)
		}
		f.change(func() { f.workers[id].gone, f.workers[id].old = false, false })
		if _, again := l.enrol(id); !again {
			t.Errorf("%s has joined again, and is not asked", id)
		}
		must.Succeed(t, l.ask(ctx, id))
		if !l.division.Answering(id) {
			t.Errorf("%s has joined again, and its response does not count", id)
		}
		l.wakes = map[string]chan struct{}{}
	}
}

// I9, I15: what clusters that know no rooms say they hold does not wrap around; because less than nothing would be room for others.
func TestI9HoldingsOfUnboundClustersDoNotWrapAround(t *testing.T) {
	f := newFederation(t, nil, "east", "west")
	f.workers["east"].held, f.workers["west"].held = math.MaxInt32, math.MaxInt32
	l := &leader{
		Service: &Service{opts: Options{Fleet: f}}, division: &allotpolicy.Division{}, unbound: map[string]bool{"east": true, "west": true},
	}
	if got := l.others(group, func(string) bool { return false }); got != (allotpolicy.Others{Unbound: math.MaxInt32}) {
		t.Errorf("they hold %+v", got)
	}
}
