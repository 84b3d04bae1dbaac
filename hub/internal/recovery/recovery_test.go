// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// disk is a data directory that hubs start on, one after the other.
type disk struct {
	*testing.T
	dir              string
	claims, registry *store.Bolt
}

func (d *disk) open() {
	d.Helper()
	var err1, err2 error
	d.claims, err1 = hubstate.Open(d.dir, hubstate.Claims)
	d.registry, err2 = hubstate.Open(d.dir, hubstate.Registry)
	must.Succeed(d, errors.Join(err1, err2))
}

func (d *disk) start() *State {
	d.Helper()
	d.open()
	s, err := Open(d.Context(), d.claims, d.registry, clock.RealClock{})
	must.Succeed(d, err)
	return s
}

func (d *disk) stop() {
	d.Helper()
	must.Succeed(d, errors.Join(d.claims.Close(), d.registry.Close()))
}

func (d *disk) lose(kind hubstate.Kind) {
	d.Helper()
	must.Succeed(d, os.Remove(kind.Path(d.dir)))
}

func newDisk(t *testing.T) *disk {
	d := &disk{T: t, dir: t.TempDir()}
	t.Cleanup(func() { _ = errors.Join(d.claims.Close(), d.registry.Close()) })
	return d
}

func (s *State) text(registered ...string) string {
	st := s.Status(registered)
	out := fmt.Sprintf("epoch %d", st.Epoch)
	if st.Last != nil {
		out += fmt.Sprintf(" %s recovering=%t accepted=%t over=%t", st.Last.Cause, st.Recovering, st.Last.Accepted, st.Last.Over)
	}
	return strings.TrimSpace(out + " " + strings.Join(st.Awaited, ","))
}

func (d *disk) want(got, want string) {
	d.Helper()
	if got != want {
		d.Errorf("got %q, want %q", got, want)
	}
}

func TestARestartWithBothFilesRecoversNothing(t *testing.T) {
	d := newDisk(t)
	for range 3 {
		d.want(d.start().text("east"), "epoch 0")
		d.stop()
	}
	d.start()
}

func TestALostLedgerIsWholeWhenAllClustersWereHeard(t *testing.T) {
	d := newDisk(t)
	d.start()
	d.stop()
	d.lose(hubstate.Claims)
	s := d.start()
	d.want(s.text("east", "west"), "epoch 1 LedgerLost recovering=true accepted=false over=false east,west")
	must.Succeed(t, errors.Join(s.Heard(t.Context(), "east"), s.Settle(t.Context(), []string{"east", "west"})))
	d.stop()
	s = d.start() // a restart in the middle continues, and loses no epoch
	d.want(s.text("east", "west"), "epoch 1 LedgerLost recovering=true accepted=false over=false west")
	must.Succeed(t, errors.Join(s.Heard(t.Context(), "west"), s.Settle(t.Context(), []string{"east", "west"})))
	d.want(s.text("east", "west", "new"), "epoch 1 LedgerLost recovering=false accepted=false over=true")
	d.stop()
	d.want(d.start().text("east"), "epoch 1 LedgerLost recovering=false accepted=false over=true")
}

func TestAnAcceptedLossStillNamesWhomItHasNotHeard(t *testing.T) {
	d := newDisk(t)
	d.start()
	d.stop()
	d.lose(hubstate.Claims)
	s := d.start()
	must.Succeed(t, errors.Join(s.Heard(t.Context(), "east"), s.Accept(t.Context())))
	if got := s.Unheard([]string{"east", "west"}); s.Recovering() || !slices.Equal(got, []string{"west"}) {
		t.Errorf("recovering %t without %v", s.Recovering(), got)
	}
}

// sent is a dispatch of the tests.
var sent = Dispatch{Cluster: "east", UID: "e", KeyHash: strings.Repeat("a", 32), Attempt: 3}

// TestAProofOutlivesEitherFile: a hub that lost one of its files verifies what the one before sent, and nothing else.
func TestAProofOutlivesEitherFile(t *testing.T) {
	d := newDisk(t)
	proof := d.start().Proof(sent)
	for _, lose := range []hubstate.Kind{hubstate.Claims, hubstate.Registry, hubstate.Claims} {
		d.stop()
		d.lose(lose)
		s := d.start()
		if got := s.Verify(sent, proof); got != Proven || s.Proof(sent) != proof {
			t.Errorf("without %s the proof is %s", lose, got)
		}
		for _, other := range []Dispatch{
			{"west", "e", sent.KeyHash, 3}, {"east", "w", sent.KeyHash, 3},
			{"east", "e", strings.Repeat("b", 32), 3}, {"east", "e", sent.KeyHash, 4},
			{"east\x00e", "", sent.KeyHash, 3},
		} {
			if got := s.Verify(other, proof); got != Forged {
				t.Errorf("for %+v it is %s", other, got)
			}
		}
		if got := s.Verify(sent, proof[:len(proof)-1]); got != Forged {
			t.Errorf("cut off it is %s", got)
		}
		for _, none := range []string{"", ".", "00000000." + proof[9:], strings.Repeat("x", 1<<16)} {
			if got := s.Verify(sent, none); got != Unproven {
				t.Errorf("%.20q is %s", none, got)
			}
		}
	}
}

// TestProofsOfARestoredHub: it verifies what was sent before the backup, and by the hub that was new in between.
func TestProofsOfARestoredHub(t *testing.T) {
	first, between := newDisk(t), newDisk(t)
	old := first.start().Proof(sent)
	var archive bytes.Buffer
	files := hubstate.Files{Claims: first.claims, Registry: first.registry, Dir: t.TempDir(), Version: "v1"}
	must.Succeed(t, files.Backup(t.Context(), time.Now(), &archive))
	recent := between.start().Proof(sent)
	between.stop()
	_, err := hubstate.Restore(t.Context(), &archive, between.dir, true, nil)
	must.Succeed(t, err)
	s := between.start()
	if a, b := s.Verify(sent, old), s.Verify(sent, recent); a != Proven || b != Proven || s.Proof(sent) != recent {
		t.Errorf("the backup's proof is %s, the recent one %s", a, b)
	}
	between.stop()
	between.lose(hubstate.Registry)
	if s = between.start(); s.Verify(sent, old) != Proven || s.Verify(sent, recent) != Proven {
		t.Error("without the registry a proof is not verified")
	}
}

// TestKeysWithoutAProofAreTakenForAWhile after the upgrade of a hub, and never by a new one.
func TestKeysWithoutAProofAreTakenForAWhile(t *testing.T) {
	for _, tc := range []struct {
		before bool // a hub without proofs had the files
		after  time.Duration
		want   Verdict
	}{
		{false, time.Minute, Unproven}, {true, time.Minute, Grandfathered}, {true, unprovenFor - time.Minute, Grandfathered},
		{true, unprovenFor, Unproven},
	} {
		d, now := newDisk(t), clocktesting.NewFakePassiveClock(time.Now())
		start := func() *State {
			t.Helper()
			d.open()
			s, err := Open(t.Context(), d.claims, d.registry, now)
			must.Succeed(t, err)
			return s
		}
		if tc.before {
			d.open()
			id := hubstate.Identity{ID: "before"}
			must.Succeed(t, errors.Join(hubstate.SaveIdentity(t.Context(), d.registry, id),
				hubstate.SaveLedger(t.Context(), d.claims, hubstate.Ledger{Identity: id})))
			d.stop()
		}
		if got := start().Verify(sent, ""); got != Unproven {
			t.Errorf("%+v: with nothing lost it is %s", tc, got)
		}
		d.stop()
		d.lose(hubstate.Claims)
		now.SetTime(now.Now().Add(tc.after))
		if got := start().Verify(sent, ""); got != tc.want {
			t.Errorf("%+v: it is %s", tc, got)
		}
		d.stop()
		now.SetTime(now.Now().Add(30 * 24 * time.Hour)) // the recovery lasts
		if got := start().Verify(sent, ""); got != tc.want {
			t.Errorf("%+v: after a restart it is %s", tc, got)
		}
	}
}

func TestAnotherLedgerIsNotOurs(t *testing.T) {
	d, other := newDisk(t), newDisk(t)
	d.start()
	d.stop()
	other.start()
	other.stop()
	must.Succeed(t, os.Rename(hubstate.Claims.Path(other.dir), hubstate.Claims.Path(d.dir)))
	d.want(d.start().text(), "epoch 1 LedgerReplaced recovering=true accepted=false over=false")
	other.start()
}

func TestALostRegistryLeavesTheLedger(t *testing.T) {
	d := newDisk(t)
	d.start()
	d.stop()
	d.lose(hubstate.Registry)
	d.want(d.start().text("east"), "epoch 0")
	d.stop()
	d.want(d.start().text("east"), "epoch 0")
}

// TestEpochs: no attempt that a lost ledger can have created is repeated.
func TestEpochs(t *testing.T) {
	d := newDisk(t)
	d.start()
	d.stop()
	d.lose(hubstate.Claims)
	s := d.start()
	for _, tc := range []struct{ seen, want int32 }{{3, 1}, {FirstAttempt(1), 2}, {FirstAttempt(4) + 7, 5}, {1, 5}} {
		if err := s.Saw(t.Context(), tc.seen); err != nil || s.Epoch() != tc.want {
			t.Errorf("after attempt %d: epoch %d, want %d: %v", tc.seen, s.Epoch(), tc.want, err)
		}
	}
	must.Succeed(t, s.Settle(t.Context(), nil))
	// The ledger numbers attempts of its own epoch by now.
	if err := s.Saw(t.Context(), FirstAttempt(5)); err != nil || s.Epoch() != 5 {
		t.Errorf("epoch %d: %v", s.Epoch(), err)
	}
	d.stop()
	d.lose(hubstate.Claims)
	d.want(d.start().text(), "epoch 6 LedgerLost recovering=true accepted=false over=false")
}

// TestAnOlderCopyOfTheLedgerIsNotTheLedger, as by hand from a copy of the volume.
func TestAnOlderCopyOfTheLedgerIsNotTheLedger(t *testing.T) {
	d := newDisk(t)
	s := d.start()
	old, err := os.ReadFile(hubstate.Claims.Path(d.dir))
	must.Succeed(t, err)
	_, err = store.CompareAndSwap(t.Context(), d.claims, "claim/k", 0, []byte("v"))
	must.Succeed(t, err)
	over, end := context.WithCancel(t.Context())
	end()
	must.Succeed(t, s.Run(over, clock.RealClock{}))
	d.stop()
	d.want(d.start().text(), "epoch 0")
	d.stop()
	must.Succeed(t, os.WriteFile(hubstate.Claims.Path(d.dir), old, 0o600))
	d.want(d.start().text(), "epoch 1 LedgerSetBack recovering=true accepted=false over=false")
}
