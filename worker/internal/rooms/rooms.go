// SPDX-License-Identifier: Apache-2.0

package rooms

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/allotpolicy"
	"navix.sh/atoll/pkg/problem"
)

// MaxGroups bounds the groups that are reported to the hub, and the rooms that it may send. Other groups do not grow.
const MaxGroups = 2000

// Rooms holds this cluster's rooms and floors. It is safe for concurrent use.
type Rooms struct {
	cache client.Reader
	clock clock.PassiveClock

	mu        sync.Mutex
	holder    *allotpolicy.Holder
	observed  map[types.NamespacedName]bool // Envs whose groups were observed
	listeners []func(env types.NamespacedName)
}

// New returns Rooms that limit nothing yet. The reader is a cache.
func New(cache client.Reader, c clock.PassiveClock) *Rooms {
	return &Rooms{cache: cache, clock: c, holder: allotpolicy.NewHolder(), observed: map[types.NamespacedName]bool{}}
}

// KeyOf returns the key of a group of an Env.
func KeyOf(env types.NamespacedName, group string) allotpolicy.Key {
	return allotpolicy.Key{Namespace: env.Namespace, Env: env.Name, Group: group}
}

// Switch turns the limits on or off, by the hub's Welcome.
func (r *Rooms) Switch(on bool) {
	r.mu.Lock()
	changed := r.holder.On() != on
	r.holder.Switch(on)
	envs := slices.Collect(maps.Keys(r.observed))
	listeners := r.listeners
	r.mu.Unlock()
	if changed {
		notify(listeners, envs)
	}
}

// On reports whether groups may grow only within rooms.
func (r *Rooms) On() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holder.On()
}

// Begin starts an incarnation, which has no rooms yet.
func (r *Rooms) Begin(incarnation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holder.Begin(incarnation)
}

// OnChange registers f, which is called when a room or floor of an Env has changed, and must not block.
func (r *Rooms) OnChange(f func(env types.NamespacedName)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners = append(r.listeners, f)
}

func notify(listeners []func(types.NamespacedName), envs []types.NamespacedName) {
	for _, env := range envs {
		for _, f := range listeners {
			f(env)
		}
	}
}

// Observe records the observation of all enabled groups of an Env that have a maxReplicas, by name. It must include all earlier growth.
func (r *Rooms) Observe(env types.NamespacedName, groups map[string]allotpolicy.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holder.Keep(env.Namespace, env.Name, func(group string) bool { _, has := groups[group]; return has })
	for name, o := range groups {
		r.holder.Observe(KeyOf(env, name), o, r.clock.Now())
	}
	r.observed[env] = true
}

// Forget drops an Env that is gone.
func (r *Rooms) Forget(env types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holder.Keep(env.Namespace, env.Name, func(string) bool { return false })
	delete(r.observed, env)
}

// Room returns the room of a group, or nil if it is not limited.
func (r *Rooms) Room(k allotpolicy.Key) *int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holder.Room(k)
}

// Floor returns this cluster's part of a group's minReplicas, or nil if the group keeps all of it.
func (r *Rooms) Floor(k allotpolicy.Key) *int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holder.Floor(k)
}

// Need records how much a group would have to hold.
func (r *Rooms) Need(k allotpolicy.Key, demand int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holder.Need(k, demand)
}

// Promise reserves growth of a group to a number. It must return true before the group is grown.
func (r *Rooms) Promise(k allotpolicy.Key, to int32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holder.Promise(k, to)
}

// Doubt records that the growth last promised may still happen.
func (r *Rooms) Doubt(k allotpolicy.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holder.Doubt(k, r.clock.Now())
}

// Allot applies a call of the hub, and returns the holdings under it.
func (r *Rooms) Allot(ctx context.Context, call *federationv1.AllotCall) (*federationv1.AllotResult, error) {
	c, err := parse(call)
	if err != nil {
		return nil, err
	}
	envs := &v1alpha1.SandboxEnvList{}
	if err := r.cache.List(ctx, envs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing envs: %w", err)
	}
	answer, unknown, err := r.take(c, envs)
	if errors.Is(err, allotpolicy.ErrIncarnation) {
		return nil, problem.New(problem.Unavailable, "%w", err)
	}
	return result(answer, unknown), err
}

func (r *Rooms) take(c allotpolicy.Call, envs *v1alpha1.SandboxEnvList) (allotpolicy.Reply, []types.NamespacedName, error) {
	r.mu.Lock()
	answer, changed, err := r.holder.Take(c)
	var unknown []types.NamespacedName
	for i := range envs.Items {
		if env := client.ObjectKeyFromObject(&envs.Items[i]); !r.observed[env] {
			unknown = append(unknown, env)
		}
	}
	listeners := r.listeners
	r.mu.Unlock()
	var woken []types.NamespacedName
	for _, k := range changed {
		woken = append(woken, types.NamespacedName{Namespace: k.Namespace, Name: k.Env})
	}
	notify(listeners, slices.Compact(woken))
	return answer, unknown, err
}

func parse(call *federationv1.AllotCall) (allotpolicy.Call, error) {
	if n := len(call.GetRooms()); n > MaxGroups {
		return allotpolicy.Call{}, problem.New(problem.Invalid, "rooms: %d are too many, want at most %d", n, MaxGroups)
	}
	c := allotpolicy.Call{
		Epoch: call.GetEpoch(), Number: call.GetNumber(), Incarnation: call.GetIncarnation(), Rooms: map[allotpolicy.Key]int32{},
		Floors: map[allotpolicy.Key]int32{},
	}
	for _, room := range call.GetRooms() {
		if room.GetRoom() < 0 {
			return allotpolicy.Call{}, problem.New(problem.Invalid, "rooms: %d is not valid, want 0 or more", room.GetRoom())
		}
		k := allotpolicy.Key{Namespace: room.GetNamespace(), Env: room.GetEnv(), Group: room.GetGroup()}
		c.Rooms[k] = room.GetRoom()
		if room.Floor != nil {
			if room.GetFloor() < 0 {
				return allotpolicy.Call{}, problem.New(problem.Invalid, "floor: %d is not valid, want 0 or more", room.GetFloor())
			}
			c.Floors[k] = room.GetFloor()
		}
	}
	return c, nil
}

// result reports the first MaxGroups in order. Groups that are left out have no room, and do not grow. If there are more unknown Envs than
// that, a partial list would mislead, so result reports nothing.
func result(a allotpolicy.Reply, unknown []types.NamespacedName) *federationv1.AllotResult {
	out := &federationv1.AllotResult{Epoch: a.Epoch, Number: a.Number}
	if len(unknown) > MaxGroups {
		return &federationv1.AllotResult{}
	}
	for _, env := range unknown {
		out.Unknown = append(out.Unknown, &federationv1.EnvKey{Namespace: env.Namespace, Name: env.Name})
	}
	keys := slices.SortedFunc(maps.Keys(a.Holdings), allotpolicy.Compare)
	for _, k := range keys[:min(len(keys), MaxGroups)] {
		h := a.Holdings[k]
		out.Holdings = append(out.Holdings, &federationv1.Holding{
			Namespace: k.Namespace, Env: k.Env, Group: k.Group, Max: h.Max, Min: h.Min, Held: h.Held, Demand: h.Demand,
		})
	}
	return out
}
