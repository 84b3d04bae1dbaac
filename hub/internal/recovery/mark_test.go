// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"os"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

func TestDecideMark(t *testing.T) {
	own := hubstate.Ledger{Identity: hubstate.Identity{ID: "l2"}, Former: []string{"l1", "l0"},
		Moved: &hubstate.Mark{ID: "l0", Revision: 50}}
	for name, c := range map[string]struct {
		id       string
		revision uint64
		proof    Verdict
		want     markRelation
		commits  uint64
	}{
		"as far":                  {"l2", 10, Proven, isFine, 0},
		"less far":                {"l2", 3, Proven, isFine, 0},
		"further":                 {"l2", 11, Proven, isBehind, 0},
		"of the one before":       {"l1", 99, Proven, isFine, 0},
		"of where it was copied":  {"l0", 50, Proven, isFine, 0},
		"of a hub that went on":   {"l0", 51, Proven, isBehind, 0},
		"of a later one":          {"l3", 1, Proven, isOther, 0},
		"further, without proof":  {"l2", 11, Unproven, isAlien, 0},
		"further, with a forgery": {"l2", 11, Forged, isAlien, 0},
		"of another hub":          {"l9", 1, Unproven, isAlien, 0},
		"as many commits":         {"l2", 10, Proven, isFine, 4},
		"more commits":            {"l2", 3, Proven, isBehind, 5}, // its revision was bumped
	} {
		if got := decideMark(own, store.Position{Revision: 10, Commits: 4}, hubstate.Mark{ID: c.id, Revision: c.revision, Commits: c.commits},
			c.proof); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Both files are set back together, as with the volume: nothing on the disk shows it, and a worker's mark does.
func TestI2AVolumeThatWasSetBackIsNoticed(t *testing.T) {
	d := newDisk(t)
	d.start()
	d.stop()
	old := map[hubstate.Kind][]byte{}
	for _, kind := range []hubstate.Kind{hubstate.Claims, hubstate.Registry} {
		var err error
		old[kind], err = os.ReadFile(kind.Path(d.dir))
		must.Succeed(t, err)
	}
	s := d.start()
	early := marksOf(s).Mark()
	_, err := store.CompareAndSwap(t.Context(), d.claims, "claim/k", 0, []byte("v"))
	must.Succeed(t, err)
	late := marksOf(s).Mark()
	if late.GetRevision() <= early.GetRevision() || late.GetId() != early.GetId() {
		t.Fatalf("the mark went from %v to %v", early, late)
	}
	lost := func(s *State, want bool) {
		t.Helper()
		got, err := marksOf(s).Remembered(t.Context(), "east", late)
		must.Succeed(t, err)
		if got != want {
			t.Errorf("claim keys count as lost: %t, want %t", got, want)
		}
	}
	lost(s, false)
	d.stop()
	for kind, content := range old {
		must.Succeed(t, os.WriteFile(kind.Path(d.dir), content, 0o600))
	}
	s = d.start()
	d.want(s.text(), "epoch 0")

	forged := hubstate.Mark{ID: late.GetId(), Revision: late.GetRevision() + 1000}
	if got, because, err := s.Remembered(t.Context(), Mark{Mark: forged, Proof: late.GetProof()}, time.Now()); err != nil || because != "" ||
		got != Forged {
		t.Errorf("a forged mark counts as %s, %q: %v", got, because, err)
	}
	if got, because, err := s.Remembered(t.Context(), Mark{Mark: forged, Proof: "other." + late.GetProof()}, time.Now()); err != nil ||
		because != "" || got != Unproven {
		t.Errorf("an unproven mark counts as %s, %q: %v", got, because, err)
	}
	lost(s, true)
	d.want(s.text("east"), "epoch 1 LedgerSetBack recovering=true accepted=false over=false east")
	lost(s, false) // the worker's mark of the ledger before is known now
	d.stop()
	s = d.start()
	d.want(s.text("east"), "epoch 1 LedgerSetBack recovering=true accepted=false over=false east")
	lost(s, false)
	d.stop()
}

func TestAMarkIsBounded(t *testing.T) {
	d := newDisk(t)
	m := marksOf(d.start())
	mark := m.Mark()
	mark.Id = string(make([]byte, 1<<20))
	if _, err := m.Remembered(t.Context(), "east", mark); err == nil {
		t.Error("an id of 1 MiB was taken")
	}
}
