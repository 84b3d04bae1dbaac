// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
)

// TestAClaimWhoseIdlePodIsTakenGoesOnBeforeItWaits: another claim takes the last idle Pod of some clusters. A claim waits only where no
// cluster has another, and is asked in as many clusters as before.
func TestAClaimWhoseIdlePodIsTakenGoesOnBeforeItWaits(t *testing.T) {
	for name, tt := range map[string]struct {
		idle  map[string]int32 // as reported
		taken []string         // of these
		want  []string         // what each cluster was asked, in order
	}{
		"the next has one":      {map[string]int32{"a": 5, "b": 5, "c": 5}, []string{"a"}, []string{"a idle", "b idle"}},
		"the third is asked":    {map[string]int32{"a": 5, "b": 5, "c": 5}, []string{"a", "b"}, []string{"a idle", "b idle", "c wait"}},
		"waits in the third":    {map[string]int32{"a": 5, "b": 5, "c": 5}, []string{"a", "b", "c"}, []string{"a idle", "b idle", "c wait"}},
		"waits in the first":    {map[string]int32{"a": 5, "b": 5}, []string{"a", "b"}, []string{"a idle", "b idle", "a wait"}},
		"no other has any":      {map[string]int32{"a": 5, "b": 0}, []string{"a"}, []string{"a idle", "a wait"}},
		"none was said to have": {map[string]int32{"a": 0, "b": 0}, []string{"a", "b"}, []string{"a wait"}},
		"the only cluster":      {map[string]int32{"a": 5}, []string{"a"}, []string{"a wait"}},
	} {
		for _, key := range []string{"", "k"} {
			bubble(t, fmt.Sprintf("%s, key %q", name, key), func(t *testing.T) {
				f := newFederation(t, tt.idle)
				var asked []string
				for id, w := range f.Workers {
					w.OnClaim = func(ctx context.Context, c *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (
						*federationv1.Answer, error) {
						how := " wait"
						if c.GetIdleOnly() {
							how = " idle"
						}
						asked = append(asked, id+how)
						if c.GetIdleOnly() && slices.Contains(tt.taken, id) {
							return refuse(w, problem.NoCapacity)(ctx, c, carryOut)
						}
						return carryOut(), nil
					}
				}
				got := f.create(workertest.Request(key, workertest.Prefer("a", "b", "c")))
				if diff := cmp.Diff(tt.want, asked); diff != "" || got.GetPhase() != sandboxv1.Phase_RUNNING {
					t.Errorf("%v; asked (-want +got):\n%s", got, diff)
				}
			})
		}
	}
}

// What refuses for another reason is not asked again, and what is excluded stays so.
func TestOnlyACandidateWithoutAnIdlePodIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"a": 5, "b": 5})
		for id, reason := range map[string]problem.Reason{"a": problem.NoCapacity, "b": problem.Forbidden} {
			f.Workers[id].OnClaim = refuse(f.Workers[id], reason)
		}
		f.wantReason(problem.NoCapacity, workertest.Request("k", workertest.Prefer("a", "b")))
		if a, b := f.Workers["a"].Claims(), f.Workers["b"].Claims(); len(a) != 2 || len(b) != 1 {
			t.Errorf("a was sent %v, b %v", a, b)
		}
	})
}
