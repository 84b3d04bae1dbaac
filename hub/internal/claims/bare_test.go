// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/workertest"
)

// A cluster that returns no result with a disposition, or an error that is none, fails the claim and nothing else (I15).
func TestI15AnAnswerWithoutAResultFailsTheClaim(t *testing.T) {
	for number, name := range federationv1.Disposition_name {
		for _, with := range []struct {
			key   string
			empty *federationv1.Answer
		}{
			{"", &federationv1.Answer{}}, {"k", &federationv1.Answer{}},
			{"", &federationv1.Answer{Error: &federationv1.Error{}}},
			{"k", &federationv1.Answer{Error: &federationv1.Error{}}},
			{"k", &federationv1.Answer{Result: &federationv1.Answer_Sandbox{Sandbox: &sandboxv1.Sandbox{}}}},
		} {
			bubble(t, name+with.key, func(t *testing.T) {
				f := newFederation(t, map[string]int32{"east": 3, "west": 3}) // of several, the first is asked for an idle Pod
				for _, worker := range f.Workers {
					worker.OnClaim = func(context.Context, *federationv1.ClaimCall, func() *federationv1.Answer) (*federationv1.Answer, error) {
						answer := proto.CloneOf(with.empty)
						answer.Disposition = federationv1.Disposition(number)
						return answer, nil
					}
				}
				if s, err := f.hub.Create(t.Context(), workertest.Request(with.key)); err == nil {
					t.Errorf("the claim got %v", s)
				}
			})
		}
	}
}
