// SPDX-License-Identifier: Apache-2.0

package agent

// decideFloor returns whether the incarnation of this term must be raised, given the highest that the hub has seen, and if so the
// number that the new one must exceed.
func decideFloor(own uint64, ownTerm string, highest uint64, highestTerm string) (floor uint64, raise bool) {
	if highest < own || highest == own && highestTerm == ownTerm {
		return 0, false
	}
	return highest, true
}
