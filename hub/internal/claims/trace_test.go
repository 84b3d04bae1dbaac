// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"testing"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/segment"
)

// Without tracing, picking a claim's cluster allocates nothing.
func TestPickingIsFreeWithoutATrace(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3, "west": 3})
	request := &sandboxv1.CreateSandboxRequest{Namespace: "default", Env: "demo"}
	p := f.hub.newPursuit(request, terms{wait: waitAssigned}, time.Now().Add(time.Minute))
	view := f.Fleet.View(segment.Key{Namespace: "default", Name: "demo"})
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if picked := p.pick(ctx, &p.route, view); !picked.OK() {
			t.Fatal(picked.Reason)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
