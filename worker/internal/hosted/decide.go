// SPDX-License-Identifier: Apache-2.0

package hosted

import "slices"

// assignment is a replica's view of the clusters and of the other replicas.
type assignment struct {
	self    string
	wanted  []string          // clusters that are engaged here
	holders map[string]string // of clusters; empty if there is none
	alive   map[string]bool   // replicas
	apart   map[string]bool   // live replicas of other providers, which share none of these clusters
}

// decide returns which clusters this replica takes, and which it gives up. Each replica may have its share, rounded up. All clusters then
// fit, and no cluster moves while replicas differ by one.
func decide(a assignment) (take, drop []string) {
	a.alive[a.self] = true
	share := (len(a.wanted) + len(a.alive) - 1) / len(a.alive)
	var mine, free []string
	for _, id := range slices.Sorted(slices.Values(a.wanted)) {
		switch holder := a.holders[id]; {
		case holder == a.self:
			mine = append(mine, id)
		case holder == "" || !a.alive[holder] && !a.apart[holder]:
			free = append(free, id)
		}
	}
	if len(mine) > share {
		return nil, mine[share:]
	}
	return free[:min(len(free), share-len(mine))], nil
}
