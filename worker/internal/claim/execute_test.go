// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"testing"
	"testing/synctest"
)

// I13: a Pod that the API server may still run something in is not reset, and nothing is sent while its end is written.
func TestI13APodIsNotResetUnderACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		pod := s.idlePod("a")
		newPlant(s, pod)
		s.see(pod)
		got, err := s.Create(t.Context(), s.keyed("k", 1))
		if err != nil {
			t.Fatal(err)
		}
		id := got.GetId()
		resets := func() bool {
			s.mu.Lock()
			defer s.unlock()
			return s.byID[id].returnsTo() == s.pool.spec
		}
		if s.Execute(pod.UID, "another") || s.Execute("gone", id) {
			t.Error("a command may be sent for a sandbox that is not there")
		}
		written := s.shutting(id, true)
		if s.Execute(pod.UID, id) {
			t.Error("a command may be sent while the end is being written")
		}
		written()
		if !resets() || !s.Execute(pod.UID, id) || resets() {
			t.Error("a Pod with a command under way is reset")
		}
		s.Executing(pod.UID, -1)
		if !resets() {
			t.Error("a Pod whose command has ended is replaced")
		}
	})
}
