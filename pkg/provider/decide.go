// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"slices"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// decide returns the clusters to engage and those to disengage, given the uids of the engaged clusters.
func decide(engaged map[string]string, listed []*sandboxv1.Cluster) (begin []*sandboxv1.Cluster, end []string) {
	keep := map[string]bool{}
	for _, c := range listed {
		uid, known := engaged[c.GetId()]
		same := known && uid == c.GetUid()
		switch c.GetState() {
		case sandboxv1.ClusterState_FRESH, sandboxv1.ClusterState_SUSPECT, sandboxv1.ClusterState_DEGRADED:
			keep[c.GetId()] = same
			if !same {
				begin = append(begin, c)
			}
		case sandboxv1.ClusterState_UNREACHABLE:
			keep[c.GetId()] = same
		}
	}
	for id := range engaged {
		if !keep[id] {
			end = append(end, id)
		}
	}
	slices.Sort(end)
	return begin, end
}
