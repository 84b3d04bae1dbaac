// SPDX-License-Identifier: Apache-2.0

package allotpolicy

import (
	"errors"
	"math"
	"slices"
	"time"
)

// Call is the message from the hub to a worker with all its rooms. A group that is not in Rooms has no room.
type Call struct {
	// Epoch and Number order calls.
	Epoch, Number uint64
	// Incarnation is the incarnation of the worker for which the rooms are.
	Incarnation uint64
	Rooms       map[Key]int32
	// Floors are the cluster's parts of minReplicas. The cluster keeps all minReplicas of a group that is not in it.
	Floors map[Key]int32
}

// Reply is the worker's reply with what it holds under the named call.
type Reply struct {
	Epoch, Number uint64
	Holdings      map[Key]Holding
	// Unknown are the Envs whose groups were not observed yet.
	Unknown map[Env]bool
}

// Env names a federated Env.
type Env struct{ Namespace, Name string }

// of returns the holding of a group, and whether the holding is known.
func (a *Reply) of(k Key) (Holding, bool) {
	return a.Holdings[k], !a.Unknown[Env{k.Namespace, k.Env}]
}

// Observation is a worker's observation of a group.
type Observation struct {
	Holding
	// Ending is the number of Pods that are being deleted. What is held does not fall until they are gone.
	Ending int32
}

// ErrIncarnation rejects a call for another incarnation.
var ErrIncarnation = errors.New("the rooms are for another incarnation")

// Unsure is how long a write with an unknown outcome counts as done.
const Unsure = time.Minute

// Holder is the worker's record of its rooms. It is not persisted, and not safe for concurrent use.
type Holder struct {
	on            bool
	incarnation   uint64
	epoch, number uint64
	groups        map[Key]*group
}

type group struct {
	room     int32
	floor    *int32
	last     Holding
	observed bool
	promised int32     // replicas after the growth in progress
	until    time.Time // until then its outcome is unknown
}

// held returns the number that the hub must count.
func (g *group) held() int32 { return max(g.last.Held, g.promised) }

// NewHolder returns a Holder without limits.
func NewHolder() *Holder { return &Holder{groups: map[Key]*group{}} }

// Switch turns limits on or off. After they are turned on there are no rooms yet.
func (h *Holder) Switch(on bool) {
	if h.on != on {
		h.on = on
		h.dropRooms()
	}
}

// On reports whether rooms limit growth.
func (h *Holder) On() bool { return h.on }

// Begin starts an incarnation, which has no rooms.
func (h *Holder) Begin(incarnation uint64) {
	if incarnation != h.incarnation {
		h.incarnation = incarnation
		h.dropRooms()
	}
}

func (h *Holder) dropRooms() {
	h.epoch, h.number = 0, 0
	for _, g := range h.groups {
		g.room, g.floor = 0, nil
	}
}

func (h *Holder) of(k Key) *group {
	g := h.groups[k]
	if g == nil {
		g = &group{}
		h.groups[k] = g
	}
	return g
}

// Room returns the room of a group, or nil if the group is not limited.
func (h *Holder) Room(k Key) *int32 {
	if !h.on {
		return nil
	}
	var room int32
	if g := h.groups[k]; g != nil {
		room = g.room
	}
	return &room
}

// Floor returns the cluster's part of a group's minReplicas, or nil if the cluster keeps all of it.
func (h *Holder) Floor(k Key) *int32 {
	if g := h.groups[k]; h.on && g != nil && g.floor != nil {
		floor := *g.floor
		return &floor
	}
	return nil
}

// Observe records an observation of a group, which must include the effect of all earlier growth.
func (h *Holder) Observe(k Key, o Observation, now time.Time) {
	g := h.of(k)
	was, all := g.held(), int32(min(int64(o.Held)+int64(o.Ending), math.MaxInt32))
	if !g.observed {
		was = all
	}
	if now.Before(g.until) {
		was = max(was, g.promised)
	} else {
		g.promised, g.until = 0, time.Time{}
	}
	o.Held = max(o.Held, min(all, was))
	g.last, g.observed = o.Holding, true
}

// Need records the demand of a group.
func (h *Holder) Need(k Key, demand int32) {
	if g := h.groups[k]; g != nil {
		g.last.Demand = demand
	}
}

// Promise must be called before a group grows to a number, which then counts as held. It returns false if the number exceeds the room.
func (h *Holder) Promise(k Key, to int32) bool {
	g := h.of(k)
	if h.on && to > g.room && to > g.held() {
		return false
	}
	g.promised = max(g.promised, to)
	return true
}

// Doubt records that the growth last promised may still happen.
func (h *Holder) Doubt(k Key, now time.Time) {
	if g := h.groups[k]; g != nil && g.promised > 0 {
		g.until = now.Add(Unsure)
	}
}

// Keep drops the groups that an Env no longer has.
func (h *Holder) Keep(namespace, env string, has func(group string) bool) {
	for k, g := range h.groups {
		if k.Namespace != namespace || k.Env != env || has(k.Group) {
			continue
		}
		if g.room == 0 && g.floor == nil {
			delete(h.groups, k)
			continue
		}
		g.last, g.observed, g.promised, g.until = Holding{}, false, 0, time.Time{}
	}
}

// Take applies a call, unless a later one was applied before. It returns what is held now, and the groups whose room or floor has changed.
func (h *Holder) Take(c Call) (Reply, []Key, error) {
	if c.Incarnation != h.incarnation || !h.on {
		return Reply{}, nil, ErrIncarnation
	}
	var changed []Key
	if c.Epoch > h.epoch || c.Epoch == h.epoch && c.Number > h.number {
		h.epoch, h.number = c.Epoch, c.Number
		for k := range c.Rooms {
			h.of(k)
		}
		for k := range c.Floors {
			h.of(k)
		}
		for k, g := range h.groups {
			if g.follow(c, k) {
				changed = append(changed, k)
			}
			if g.room == 0 && g.floor == nil && !g.observed && g.promised == 0 {
				delete(h.groups, k)
			}
		}
	}
	out := Reply{Epoch: h.epoch, Number: h.number, Holdings: map[Key]Holding{}}
	for k, g := range h.groups {
		if g.observed && g.last.Present {
			holding := g.last
			holding.Held = g.held()
			out.Holdings[k] = holding
		}
	}
	slices.SortFunc(changed, Compare)
	return out, changed, nil
}

// follow sets a group's room and floor from a call, and reports whether they changed.
func (g *group) follow(c Call, k Key) (changed bool) {
	room, floor := c.Rooms[k], (*int32)(nil)
	if told, named := c.Floors[k]; named {
		floor = &told
	}
	changed = g.room != room || (g.floor == nil) != (floor == nil) || floor != nil && *g.floor != *floor
	g.room, g.floor = room, floor
	return changed
}
