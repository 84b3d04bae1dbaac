// SPDX-License-Identifier: Apache-2.0

package router

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// Proto is the explanation as the public API shows it.
func (e *Explanation) Proto(decidedAt time.Time) *sandboxv1.Decision {
	d := &sandboxv1.Decision{Reason: string(e.Reason), DecidedAt: timestamppb.New(decidedAt)}
	for i := range e.Candidates {
		c := &e.Candidates[i]
		d.Candidates = append(d.Candidates, &sandboxv1.Candidate{
			ClusterId: c.Cluster.ID,
			Pool:      c.Member().Name,
			Rank:      int32(c.Rank),
			Tier:      c.Tier.String(),
			Reason:    string(c.Reason),
			Message:   c.Message(),
			Priority:  c.Member().Shape.Get().Priority,
			ReadyIdle: c.Member().ReadyIdle,
			InFlight:  c.InFlight,
			Pending:   c.Member().Pending,
			Age:       durationpb.New(c.Age),
		})
	}
	if len(d.Candidates) > 0 && d.Candidates[0].Rank > 0 {
		d.ClusterId, d.Pool, d.Message = d.Candidates[0].ClusterId, d.Candidates[0].Pool, d.Candidates[0].Message
	}
	return d
}
