// SPDX-License-Identifier: Apache-2.0

package disposition

import (
	"context"
	"errors"
	"fmt"
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
)

func TestOf(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want federationv1.Disposition
	}{
		{nil, federationv1.Disposition_DONE},
		{Refuse(problem.NoCapacity, "none"), federationv1.Disposition_REFUSED},
		{fmt.Errorf("claiming: %w", Refuse(problem.NoCapacity, "none")), federationv1.Disposition_REFUSED},
		{Fault(problem.New(problem.Invalid, "no")), federationv1.Disposition_DONE},
		{Doubt("who knows"), federationv1.Disposition_UNCLEAR},
		{NotServing(), federationv1.Disposition_STALE_SESSION},
		{errors.New("anything else"), federationv1.Disposition_UNCLEAR},
		{context.Canceled, federationv1.Disposition_UNCLEAR},
	} {
		if got := Of(tc.err); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.err, got, tc.want)
		}
	}
	var p *problem.Error
	if err := Refuse(problem.QueueFull, "full"); !errors.As(err, &p) || p.Reason != problem.QueueFull || p.RetryAfter == 0 {
		t.Errorf("the problem in a refusal is %v", p)
	}
}
