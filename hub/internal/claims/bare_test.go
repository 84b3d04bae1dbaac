// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"testing"
	"testing/synctest"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/workertest"
)

// A cluster that returns no result with a disposition, whichever it is, fails the claim and nothing else (I15).
func TestI15AnAnswerWithoutAResultFailsTheClaim(t *testing.T) {
	for number, name := range federationv1.Disposition_name {
		for _, key := range []string{"", "k"} {
			t.Run(name+key, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFederation(t, map[string]int32{"east": 3, "west": 3}) // of several, the first is asked for an idle Pod
					for _, worker := range f.Workers {
						worker.OnClaim = func(context.Context, *federationv1.ClaimCall, func() *federationv1.Answer) (*federationv1.Answer, error) {
							return &federationv1.Answer{Disposition: federationv1.Disposition(number)}, nil
						}
					}
					if s, err := f.hub.Create(t.Context(), workertest.Request(key)); err == nil {
						t.Errorf("the claim got %v", s)
					}
				})
			})
		}
	}
}
