// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"
)

// maxEvents bounds the recorded events of a run; further ones are only counted.
const maxEvents = 200_000

// Run is the result of a plan.
type Run struct {
	Plan Plan
	// Step is the period of one Point.
	Step  time.Duration
	Pools []PoolRun
	// Events are in the order of time.
	Events []Event
	// Omitted counts the events that were not recorded.
	Omitted int
	// Claims counts all claims, Waiting those that still wait at the end.
	Claims, Waiting int
	// Refused counts claims that no pool took, by reason.
	Refused map[string]int
	// Decisions counts the calls of Decide.
	Decisions int
}

// PoolRun is one pool's part of a run.
type PoolRun struct {
	Pool
	Points []Point
	// Reasons counts changes of replicas, and gates that prevented one, by reason.
	Reasons map[string]int
	// Waits are the waiting times of all served claims; 0 if a Pod was idle.
	Waits []time.Duration
	// Refused counts claims that timed out in the queue, by reason; Lost counts sandboxes that ended with their Pod.
	Refused map[string]int
	Lost    int
	// StatusWrites counts the writes of status.autoscaling.
	StatusWrites int
	// Removals are the Pods deleted by a scale-down.
	Removals []Removal
	// PodTime is the Pod-time in each state.
	PodTime [podStates]time.Duration
	// Peak is the greatest number of Pods; Wanted is the greatest number of sandboxes, including the queue.
	Peak, Wanted int32
}

// Point is a pool at the end of a step; Queue is the longest within it.
type Point struct {
	Replicas, Starting, Idle, Running, Queue int32
}

// pods is the number of Pods.
func (p Point) pods() int32 { return p.Starting + p.Idle + p.Running }

func (p Point) add(o Point) Point {
	return Point{p.Replicas + o.Replicas, p.Starting + o.Starting, p.Idle + o.Idle, p.Running + o.Running, p.Queue + o.Queue}
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	Grew     EventKind = "grew"
	Shrank   EventKind = "shrank"
	Probed   EventKind = "probed"   // admission was asked, with any result
	Marked   EventKind = "marked"   // Pods were chosen for removal
	Kept     EventKind = "kept"     // marked Pods were claimed or are needed again
	Edited   EventKind = "edited"   // by hand
	Held     EventKind = "held"     // a gate newly prevented growth or shrinking
	Disturb  EventKind = "disturb"  // a disturbance began
	Restored EventKind = "restored" // a disturbance ended
)

// Event is something worth reporting.
type Event struct {
	At       time.Duration
	Kind     EventKind
	Pool     int // index in Run.Pools; -1 for all
	From, To int32
	Asked    int32  // of Probed: the target
	Busy     int32  // Pods that run a sandbox, as in the decision
	Reason   string // typed, from the decision
	Text     string // a message
}

// Removal is a Pod deleted by a scale-down.
type Removal struct {
	At       time.Duration
	Pod      string
	State    string        // at the deletion
	Idle     time.Duration // how long the autoscaler had seen it idle when it marked it; below 0: the pool marked it after an edit
	Marked   time.Duration // when it was marked
	Replicas int32         // of the pool
}

// Total sums all pools of a group, or all pools if group is empty.
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

// stepFor splits a run into about 700 points, with round steps.
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
