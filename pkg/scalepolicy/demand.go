// SPDX-License-Identifier: Apache-2.0

package scalepolicy

import "math"

// Held is the number of Pods that the group's limits count.
func (g *Group) Held() int32 {
	held := int64(g.Others)
	for i := range g.Members {
		held += int64(max(g.Members[i].Replicas, g.Members[i].Pods.Live()))
	}
	return bounded(held)
}

// HeldAfter is the same once a decision was carried out.
func (g *Group) HeldAfter(d *Decision) int32 {
	held := int64(g.Others)
	for i := range g.Members {
		held += int64(max(d.Members[i].To, g.Members[i].Pods.Live()))
	}
	return bounded(held)
}

// floor is what the group keeps in this cluster, and how that is called.
func (g *Group) floor() (n int32, text string) {
	if n = value(g.Policy.MinReplicas); g.Floor != nil {
		return min(n, *g.Floor), "this cluster's part of the group's minReplicas"
	}
	return n, "the group's minReplicas"
}

// Demand is how many Pods the group would have to hold for its sandboxes, waiting claims and floors, and for the growth that its room
// stopped. A part of the group's minReplicas is not in it; because who divides knows it, and divides rooms by it before it is told.
func (g *Group) Demand(d *Decision) int32 {
	var busy, floors int64
	stopped := false
	for i := range g.Members {
		m := &g.Members[i]
		busy += int64(m.Pods.busy()) + int64(m.Queue)
		floors += int64(value(m.MinReplicas))
		for _, s := range d.Members[i].Stops {
			stopped = stopped || s.Reason == ReasonNoRoom
		}
	}
	demand := max(busy, floors)
	if g.Floor == nil {
		demand = max(demand, int64(value(g.Policy.MinReplicas)))
	}
	if stopped {
		demand = max(demand, int64(g.HeldAfter(d))+1)
	}
	if limit := g.Policy.MaxReplicas; limit != nil {
		demand = min(demand, int64(*limit))
	}
	return bounded(demand)
}

func bounded(n int64) int32 { return int32(min(max(n, 0), math.MaxInt32)) }
