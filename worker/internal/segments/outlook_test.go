// SPDX-License-Identifier: Apache-2.0

package segments

import (
	"testing"
	"time"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/segment"
)

// The hub gets what the autoscaler expects, and a saturation before the Env's status has it.
func TestDescribeMemberTellsTheOutlook(t *testing.T) {
	member := &v1alpha1.EnvClusterMember{Name: "a"}
	for name, c := range map[string]struct {
		facts    poolFacts
		observed v1alpha1.ObservedMemberState
		want     segment.Member
	}{
		"can grow": {poolFacts{canGrow: true}, v1alpha1.ObservedMemberStateActive,
			segment.Member{State: segment.Active, CanGrow: true}},
		"saturated for a time": {poolFacts{saturated: time.Minute}, v1alpha1.ObservedMemberStateActive,
			segment.Member{State: segment.Saturated, SaturatedFor: time.Minute}},
		"at its ceiling": {poolFacts{}, v1alpha1.ObservedMemberStateSaturated, segment.Member{State: segment.Saturated}},
		"not as it should be": {poolFacts{saturated: time.Minute}, v1alpha1.ObservedMemberStateInconsistent,
			segment.Member{State: segment.Inconsistent, SaturatedFor: time.Minute}},
		"nothing scales it": {poolFacts{}, v1alpha1.ObservedMemberStateActive, segment.Member{State: segment.Active}},
	} {
		c.facts.pool = &v1alpha1.SandboxPool{}
		got := describeMember(member, c.observed, c.facts)
		if got.State != c.want.State || got.CanGrow != c.want.CanGrow || got.SaturatedFor != c.want.SaturatedFor {
			t.Errorf("%s: %s, can grow %v, saturated for %s", name, got.State, got.CanGrow, got.SaturatedFor)
		}
	}
}
