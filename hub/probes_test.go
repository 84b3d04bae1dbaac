// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// A replica that the store does not respond to is ready while that may be so for all, and avoided once others are better off.
func TestReadinessWithoutTheStore(t *testing.T) {
	shared := store.NewMemory()
	must.Succeed(t, shared.Close())
	now := clocktesting.NewFakeClock(time.Now())
	others := true
	p := newProbes(prometheus.NewRegistry(), shared)
	p.failing.clock, p.othersServe = now, func() bool { return others }
	for _, step := range []struct {
		after  time.Duration
		others bool
		ready  bool
	}{
		{0, true, true}, {avoidAfter / 2, true, true}, {avoidAfter, true, false}, {time.Hour, false, true}, {0, true, false},
	} {
		now.Step(step.after)
		others = step.others
		degraded, err := p.ready(t.Context(), false)
		if (err == nil) != step.ready || err == nil && degraded == nil {
			t.Errorf("%s later, others serve: %t: degraded %v, %v", step.after, step.others, degraded, err)
		}
	}
	if _, err := p.ready(t.Context(), true); err == nil {
		t.Error("a replica without the store and without others is ready")
	}
	p.store = store.NewMemory()
	if degraded, err := p.ready(t.Context(), false); err != nil || degraded != nil {
		t.Errorf("with the store: %v, %v", degraded, err)
	}
	p.store = shared
	if _, err := p.ready(t.Context(), false); err != nil {
		t.Errorf("a failure of before counts after a success: %v", err)
	}
}

// A replica tells the others that the store fails while its probes have no response, although no other call has failed: else all replicas
// without the quorum would leave their callers to each other.
func TestAReplicaIsDegradedWhileItsProbesFail(t *testing.T) {
	file, err := hubstate.Open(t.TempDir(), hubstate.Claims)
	must.Succeed(t, err)
	defer file.Close()
	gone := store.NewMemory()
	must.Succeed(t, gone.Close())
	h := &hub{claimsStore: file, probes: newProbes(prometheus.NewRegistry(), gone)}
	if h.degraded() {
		t.Error("before the first probe")
	}
	for i, responds := range []bool{false, true, false} {
		h.probes.store = gone
		if responds {
			h.probes.store = store.NewMemory()
		}
		_, _ = h.probes.ready(t.Context(), false)
		if h.degraded() == responds {
			t.Errorf("probe %d: the store responds: %t, degraded %t", i, responds, h.degraded())
		}
	}
}
