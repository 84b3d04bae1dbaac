// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"fmt"
	"slices"
)

// Check returns all violations that a single snapshot shows, ordered by invariant, cluster and object.
func Check(s *Snapshot) []Finding {
	var found []Finding
	for _, check := range []func(*Snapshot) []Finding{
		sandboxesOnOnePod, claimsAreOrdered, keysOnOnePod, keysOfOneSpace, keysAsTheHubKnows, // I1, I2
		segmentsHaveOneWriter,                                  // I3
		foreignEqualsOwners, hubEqualsOwners, registrationsEnd, // I4
		catalogueIsThere,               // I4, I5
		hubListsSandboxes,              // I2, I5
		sandboxesAreLeftAlone,          // I6
		troubleStaysWhereItIs,          // I7
		clustersServe, segmentsAreTrue, // I8
		ceilingsHold,        // I9
		programsAreBounded,  // I10
		clocksDecideNothing, // I11
		identitiesAreBound,  // I12
		idleIsClean,         // I13
	} {
		found = append(found, check(s)...)
	}
	return order(found)
}

// order sorts findings, and drops duplicates from several checks.
func order(found []Finding) []Finding {
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(number(a.Invariant), number(b.Invariant)), cmp.Compare(a.Cluster, b.Cluster),
			cmp.Compare(a.Object, b.Object), cmp.Compare(a.Wrong, b.Wrong))
	})
	return slices.Compact(found)
}

func number(invariant string) (n int) {
	_, _ = fmt.Sscanf(invariant, "I%d", &n)
	return n
}
