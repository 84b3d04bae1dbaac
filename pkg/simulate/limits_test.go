// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/api/v1alpha1"
)

// TestNoLimit: the highest int32 means no limit, and can be drawn and loaded.
func TestNoLimit(t *testing.T) {
	p := &picture{}
	p.axis(scale{100, 100, math.MaxInt32}, 4)
	if lines := strings.Count(p.b.String(), "<path"); lines < 2 || lines > 6 || !strings.Contains(p.b.String(), ">2000000000<") &&
		!strings.Contains(p.b.String(), ">1000000000<") {
		t.Errorf("%d lines:\n%s", lines, p.b.String())
	}
	most := int32(math.MaxInt32)
	env := Env{Groups: []v1alpha1.EnvAutoscalingGroup{{MaxReplicas: &most}, {MaxReplicas: &most}}}
	if usual := env.Usual(); usual != MaxWanted {
		t.Errorf("the usual demand is %g", usual)
	}
	load := NewLoad(1, Spread{}).Burst(0, math.MaxInt32, time.Second)
	if n := len(load.Claims()); n != MaxClaims {
		t.Errorf("a burst of %d claims", n)
	}
}
