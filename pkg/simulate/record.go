// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"
)

// maxEvents bounds what a run remembers of single decisions; beyond it they are only counted.
const maxEvents = 200_000

// Run is what came of a plan.
type Run struct {
	Plan Plan
	// Step is the time that one Point stands for.
	Step  time.Duration
	Pools []PoolRun
	// Events are in the order in which they happened.
	Events []Event
	// Omitted is how many more there were.
	Omitted int
	// Claims are those that came, Waiting those that still do at the end.
	Claims, Waiting int
	// Refused counts claims that no pool took, by reason.
	Refused map[string]int
	// Decisions is how often Decide was asked.
	Decisions int
}

// PoolRun is what became of one pool.
type PoolRun struct {
	Pool
	Points []Point
	// Reasons counts, by reason, the times that replicas were changed or something kept them from it.
	Reasons map[string]int
	// Waits are of all claims that were served, 0 where a Pod was idle.
	Waits []time.Duration
	// Refused counts claims that waited in vain, by reason; Lost sandboxes ended with their Pod.
	Refused map[string]int
	Lost    int
	// StatusWrites is how often status.autoscaling was written.
	StatusWrites int
	// Removals are the Pods that were deleted to scale down.
	Removals []Removal
	// PodTime is how much Pod-time went into each state.
	PodTime [podStates]time.Duration
	// Peak is the greatest number of Pods there were; Wanted the greatest number of sandboxes, queue included.
	Peak, Wanted int32
}

// Point is a pool at the end of a step; Queue is the longest within it.
type Point struct {
	Replicas, Starting, Idle, Running, Queue int32
}

// pods is how many there were.
func (p Point) pods() int32 { return p.Starting + p.Idle + p.Running }

func (p Point) add(o Point) Point {
	return Point{p.Replicas + o.Replicas, p.Starting + o.Starting, p.Idle + o.Idle, p.Running + o.Running, p.Queue + o.Queue}
}

// What an Event is.
type EventKind string

// The kinds of events.
const (
	Grew     EventKind = "grew"
	Shrank   EventKind = "shrank"
	Probed   EventKind = "probed"   // admission was asked, whatever it said
	Marked   EventKind = "marked"   // Pods were chosen for removal
	Kept     EventKind = "kept"     // marked Pods were claimed, or are wanted after all
	Edited   EventKind = "edited"   // by hand
	Held     EventKind = "held"     // a gate stopped growth or shrinking that had not before
	Disturb  EventKind = "disturb"  // something began to go wrong
	Restored EventKind = "restored" // and ended
)

// Event is something worth reporting.
type Event struct {
	At       time.Duration
	Kind     EventKind
	Pool     int // index in Run.Pools; -1 for all
	From, To int32
	Asked    int32  // of Probed, the target that was wanted
	Busy     int32  // Pods that run a sandbox, as the decision had it
	Reason   string // typed, from the decision
	Text     string // for people
}

// Removal is a Pod that was deleted to scale down.
type Removal struct {
	At       time.Duration
	Pod      string
	State    string        // that it was in
	Idle     time.Duration // for which the autoscaler had seen it idle when it marked it; below 0: the pool marked it, after an edit
	Marked   time.Duration // when it was
	Replicas int32         // of the pool
}

// Total sums all pools of a group, or all pools where group is empty.
func (r *Run) Total(group string) []Point {
	var sum []Point
	for i := range r.Pools {
		if group != "" && r.Pools[i].Config.ScalingGroup != group {
			continue
		}
		if sum == nil {
			sum = slices.Clone(r.Pools[i].Points)
			continue
		}
		for j := range sum {
			sum[j] = sum[j].add(r.Pools[i].Points[j])
		}
	}
	return sum
}

func (r *Run) event(e Event) {
	if len(r.Events) >= maxEvents {
		r.Omitted++
		return
	}
	r.Events = append(r.Events, e)
}

// stepFor makes some 700 points of a run, in steps that people count in.
func stepFor(d time.Duration) time.Duration {
	for _, step := range []time.Duration{
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	} {
		if d <= 720*step {
			return step
		}
	}
	return time.Hour
}
