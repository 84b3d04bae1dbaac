// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// RequestOf returns the part of a claim that matters to the router.
func RequestOf(r *sandboxv1.CreateSandboxRequest) Request {
	return Request{
		InstanceType: r.GetInstanceType(), Multiplier: r.GetMultiplier(), ScalingGroup: r.GetScalingGroup(),
		Clusters: r.GetClusters(), RequireClusters: r.GetRequireClusters(), NoQueue: r.GetNoQueue(), Team: r.GetTeam(),
	}
}

// Proto converts the explanation for the public API. It contains the first most candidates, and those for which keep returns true; keep may
// be nil.
func (e *Explanation) Proto(decidedAt time.Time, most int, keep func(*Explained) bool) *sandboxv1.Decision {
	d := &sandboxv1.Decision{Reason: string(e.Reason), DecidedAt: timestamppb.New(decidedAt)}
	for i := range e.Candidates {
		if c := &e.Candidates[i]; i < most || keep != nil && keep(c) {
			d.Candidates = append(d.Candidates, c.proto())
		}
	}
	switch {
	case len(e.Candidates) == 0:
		d.Message = "the Env has no members"
	case e.Candidates[0].Rank == 1:
		first := &e.Candidates[0]
		d.ClusterId, d.Pool, d.Message = first.Cluster.ID, first.Member().Name, first.Message()
	default:
		d.Message = "no candidate is eligible"
	}
	if left := len(e.Candidates) - len(d.Candidates); left > 0 {
		d.Message += fmt.Sprintf("; %d more candidates are left out", left)
	}
	return d
}

func (c *Explained) proto() *sandboxv1.Candidate {
	m := c.Member()
	return &sandboxv1.Candidate{
		ClusterId: c.Cluster.ID, Pool: m.Name, Rank: int32(c.Rank), Tier: c.Tier.String(), Reason: string(c.Reason), Message: c.Message(),
		Priority: m.Shape.Get().Priority, ReadyIdle: m.ReadyIdle, InFlight: c.InFlight, Pending: m.Pending, Age: durationpb.New(c.Age),
	}
}
