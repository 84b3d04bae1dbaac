// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// TestTheFirstIndexAfterARestoreIsToldApart: only on the stream whose Welcome reported the restore, and once.
func TestTheFirstIndexAfterARestoreIsToldApart(t *testing.T) {
	indexes, restored := make(chan string, 10), make(chan string, 10)
	h := newHub(t, handler{
		onKeys:     func(_ string, keys []*federationv1.KeyHolder) { indexes <- keys[0].GetKeyHash() },
		onRestored: func(_ string, keys []*federationv1.KeyHolder) { restored <- keys[0].GetKeyHash() },
	})
	index := func(w *worker, sequence uint64, name string) {
		w.sendReport(&federationv1.Report{
			Sequence: sequence, Last: true, Complete: true, Keys: []*federationv1.KeyHolder{{KeyHash: name}},
		})
		if got := <-indexes; got != name {
			t.Errorf("index %s, want %s", got, name)
		}
	}
	join := func(term string, incarnation, revision uint64) *worker {
		w := h.dial("a")
		frame := w.hello(&federationv1.Hello{ClusterUid: "uid", Term: term, Incarnation: incarnation, ResourceVersion: revision})
		if got, want := frame.GetWelcome().GetEtcdRestored(), term == "after"; got != want {
			t.Errorf("term %s: restored %t", term, got)
		}
		w.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Begin{Begin: &federationv1.Begin{Incarnation: incarnation}}})
		w.read()
		return w
	}
	before := join("before", 1, 200)
	index(before, 1, "before")
	before.end()
	after := join("after", 2, 100)
	index(after, 1, "first")
	index(after, 2, "second")
	after.end()
	close(restored)
	var got []string
	for name := range restored {
		got = append(got, name)
	}
	if len(got) != 1 || got[0] != "first" {
		t.Errorf("told of %v", got)
	}
}
