// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/wait"
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
	w.hub.mu.Lock()
	w.hub.noAcks = true
	w.hub.mu.Unlock()
	w.scale("py-main", 2)
	w.hub.shows("py", 2)
	close(second.hangUp)
	third := w.hub.session()
	if r := third.lastReport(1); third.hello.GetAcknowledged() != 0 || !r.GetComplete() {
		t.Errorf("after a report without acknowledgement: %v, %v", third.hello, r)
	}
}
