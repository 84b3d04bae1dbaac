// SPDX-License-Identifier: Apache-2.0

package scalepolicy

import "math"

// Held returns the number of Pods that count towards the group's limits.
func (g *Group) Held() int32 {
	held := int64(g.Others)
	for i := range g.Members {
		held += int64(max(g.Members[i].Replicas, g.Members[i].Pods.Live()))
	}
	return bounded(held)
}

// HeldAfter returns Held after the decision is carried out.
func (g *Group) HeldAfter(d *Decision) int32 {
	held := int64(g.Others)
	for i := range g.Members {
		held += int64(max(d.Members[i].To, g.Members[i].Pods.Live()))
	}
	return bounded(held)
}

// floor returns the number of Pods that the group keeps in this cluster, and a description of it.
func (g *Group) floor() (n int32, text string) {
	if n = value(g.Policy.MinReplicas); g.Floor != nil {
		return min(n, *g.Floor), "this cluster's part of the group's minReplicas"
	}
	return n, "the group's minReplicas"
}

// Demand returns how many Pods the group would need for its sandboxes, waiting claims and floors, and for growth that its room stopped. It
// does not include this cluster's part of the group's minReplicas, because the hub divides minReplicas and takes the parts into account
// itself.
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
