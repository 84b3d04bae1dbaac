// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"time"

	"navix.sh/atoll/pkg/problem"
)

// MemberState is the state of one member in a running federation.
type MemberState struct {
	Cluster, Name string
	Replicas      int32 // desired
	Running       int32 // sandboxes
}

// Begin returns an Env that starts with the replicas of the given members, and claims for their running sandboxes. The remaining times of
// use are spread evenly up to typical. Members that the Env does not contain are ignored.
func (e Env) Begin(members []MemberState, typical time.Duration) (Env, []Claim, error) {
	pools := make([]Pool, len(e.Pools))
	copy(pools, e.Pools)
	e.Pools = pools
	var running []Claim
	found := 0
	for i := range e.Pools {
		for _, m := range members {
			if m.Cluster != e.Pools[i].Cluster || m.Name != e.Pools[i].Name {
				continue
			}
			if m.Replicas < 0 || m.Replicas > maxReplicas || m.Running < 0 || m.Running > maxReplicas {
				return e, nil, problem.New(problem.Invalid, "member %s of cluster %s is reported with %d Pods and %d sandboxes, want 0 to %d",
					m.Name, m.Cluster, m.Replicas, m.Running, maxReplicas)
			}
			found++
			e.Pools[i].Replicas = m.Replicas
			for n := range min(m.Running, m.Replicas) {
				running = append(running, Claim{Runs: typical * time.Duration(n+1) / time.Duration(m.Running), Group: e.Pools[i].Config.ScalingGroup})
			}
		}
	}
	if found == 0 {
		return e, nil, problem.New(problem.NotFound, "the federation reports none of the members of %s", e.Name)
	}
	return e, running, nil
}
