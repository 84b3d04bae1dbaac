// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/sandbox"
)

// lastReport waits for a stream's n-th report, and returns its last chunk.
func (s *session) lastReport(n int) (out *federationv1.Report) {
	s.Helper()
	s.Eventually("a report", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.reports) >= n {
			out = s.reports[n-1]
		}
		return wait.If(out != nil, len(s.reports))
	})
	return out
}

// TestAStreamResumes: a worker tells the view that the hub has acknowledged, and a hub that has the same gets the differences alone, with
// the key index.
func TestAStreamResumes(t *testing.T) {
	w := newWorld(t)
	w.makeEnv("py", 1)
	w.makeEnv("js", 1)
	w.lead(clusterID)
	first := w.hub.session()
	if r := first.lastReport(1); first.hello.GetAcknowledged() != 0 || !r.GetComplete() {
		t.Errorf("the first stream of a term says %v and begins with %v", first.hello, r)
	}
	w.hub.shows("py", 1)
	w.hub.shows("js", 1)
	first.beats(2) // what was reported has been acknowledged
	close(first.hangUp)
	w.deleteEnv("js")

	second := w.hub.session()
	r := second.lastReport(1)
	if r.GetComplete() || !r.GetIndex() || len(r.GetSegments()) > 1 {
		t.Errorf("the second stream begins with %v, want the differences and the key index", r)
	}
	w.hub.shows("js", -1)
	w.hub.shows("py", 1)

	// A hub whose acknowledgement is missing may have the report or not.
	w.hub.set(func() { w.hub.noAcks = true })
	w.scale("py-main", 2)
	w.hub.shows("py", 2)
	close(second.hangUp)
	third := w.hub.session()
	if r := third.lastReport(1); third.hello.GetAcknowledged() != 0 || !r.GetComplete() {
		t.Errorf("after a report without acknowledgement: %v, %v", third.hello, r)
	}
}

// TestI2ASandboxThatALateWriteMadeIsNamed: the key index is sent again once a sandbox has appeared that this leader did not write; because
// the hub may have canceled its claim at an earlier leader. The leader's own claims send none.
func TestI2ASandboxThatALateWriteMadeIsNamed(t *testing.T) {
	w := newWorld(t)
	w.makeEnv("py", 2)
	w.lead(clusterID)
	s := w.hub.session()
	s.lastReport(1)
	w.hub.shows("py", 2)
	own := s.ask(1, &federationv1.Dispatch{Call: w.claimCall("py", w.hash(1))}).GetSandbox().GetId()
	s.beats(2)

	free := w.pods()
	free = slices.DeleteFunc(free, func(p corev1.Pod) bool { return sandbox.Read(&p).ID != "" })
	grant := &sandbox.Grant{
		Claim: sandbox.Claim{
			ID: "00" + w.Namespace + "-" + clusterID, Key: "late", KeyHash: w.hash(2), Attempt: 1, Incarnation: 1, User: "ann",
		},
		Image: poolImage, Now: time.Now(),
	}
	patch, _, err := sandbox.ClaimPatch(&free[0], grant)
	w.Must(err)
	w.Must(w.Live.Patch(w.Context(), &free[0], client.RawPatch(types.JSONPatchType, patch)))

	var index *federationv1.Report
	w.Eventually("a key index", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := slices.IndexFunc(s.reports, (*federationv1.Report).GetIndex); n >= 0 {
			index = s.reports[n]
		}
		return wait.If(index != nil, len(s.reports))
	})
	var named []string
	for _, k := range index.GetKeys() {
		if k.GetKeyHash() == w.hash(1) || k.GetKeyHash() == w.hash(2) {
			named = append(named, k.GetSandboxId())
		}
	}
	if want := []string{grant.ID, own}; !slices.Equal(named, want) {
		t.Errorf("I2: the first index after the stream's first report names %v, want %v", named, want)
	}
}

// lateClaims counts late writes.
type lateClaims struct {
	waitingClaims
	late uint64
}

func (l *lateClaims) LateWrites() uint64 { return l.late }

// A user who makes sandboxes appear all the time, for example by labels on Pods, has the key index sent ever more rarely.
func TestI14LateWritesCostFewIndexes(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Unix(1000, 0))
	claims := &lateClaims{}
	a := New(nil, nil, nil, Options{Services: Services{Claims: claims, Sandboxes: claims}, Log: logr.Discard()})
	u := newUplink(a)
	u.clock, u.out.sequence = fake, window // without credit, no report is built
	indexes := 0
	for range 3600 {
		claims.late++
		must.Succeed(t, u.lookForLateWrites(t.Context()))
		if u.resume {
			indexes++
			u.resume = false
		}
		fake.Step(time.Second)
	}
	if indexes != 10 { // after 0, 30 and 90 s, 3.5, 7.5, 15.5, 25.5, 35.5, 45.5 and 55.5 min
		t.Errorf("%d indexes in an hour, want 10", indexes)
	}
}
