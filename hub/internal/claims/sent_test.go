// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"strings"
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
)

// What a cluster served, and failed to serve, is told; what is the caller's own fault is not.
func TestOnSent(t *testing.T) {
	for _, tt := range []struct {
		name   string
		reason problem.Reason // of the answer; empty: the sandbox
		want   string
	}{
		{"served", "", "east true"},
		{"a hook that failed", problem.Misconfigured, "east false"},
		{"a fault of the worker", problem.Internal, "east false"},
		{"no free Pod", problem.NoCapacity, "east false"},
		{"an invalid request", problem.Invalid, ""},
		{"not allowed", problem.Forbidden, ""},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			f := newFederation(t, map[string]int32{"east": 5})
			request := workertest.Request("")
			var got []string
			f.hub.OnSent(func(env segment.Key, cluster string, ok bool) {
				if env.Namespace != "default" || env.Name != request.GetEnv() {
					t.Errorf("told of Env %v", env)
				}
				got = append(got, fmt.Sprint(cluster, " ", ok))
			})
			f.Workers["east"].OnClaim = func(
				_ context.Context, _ *federationv1.ClaimCall, carryOut func() *federationv1.Answer,
			) (*federationv1.Answer, error) {
				if tt.reason == "" {
					return carryOut(), nil
				}
				return workertest.Failure(federationv1.Disposition_DONE, tt.reason), nil
			}
			_, err := f.hub.Create(t.Context(), request)
			if (err == nil) != (tt.reason == "") {
				t.Errorf("answered %v", err)
			}
			if text := strings.Join(got, ", "); text != tt.want {
				t.Errorf("told of %q, want %q", text, tt.want)
			}
		})
	}
}
