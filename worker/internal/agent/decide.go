// SPDX-License-Identifier: Apache-2.0

package agent

// decideFloor returns whether this term's incarnation must be raised, given the highest one that the hub has seen. If so, the new number
// must exceed floor.
func decideFloor(own uint64, ownTerm string, highest uint64, highestTerm string) (floor uint64, raise bool) {
	if highest < own || highest == own && highestTerm == ownTerm {
		return 0, false
	}
	return highest, true
}
