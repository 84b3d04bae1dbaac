// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/clock"

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

func (d *disk) start() *State {
	d.Helper()
	var err1, err2 error
	d.claims, err1 = hubstate.Open(d.dir, hubstate.Claims)
	d.registry, err2 = hubstate.Open(d.dir, hubstate.Registry)
	if err := errors.Join(err1, err2); err != nil {
		d.Fatal(err)
	}
	s, err := Open(d.Context(), d.claims, d.registry, clock.RealClock{})
	if err != nil {
		d.Fatal(err)
	}
	return s
}

func (d *disk) stop() {
	d.Helper()
	if err := errors.Join(d.claims.Close(), d.registry.Close()); err != nil {
		d.Fatal(err)
	}
}

func (d *disk) lose(kind hubstate.Kind) {
	d.Helper()
	if err := os.Remove(kind.Path(d.dir)); err != nil {
		d.Fatal(err)
	}
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
	if _, err := store.CompareAndSwap(t.Context(), d.claims, "claim/k", 0, []byte("v")); err != nil {
		t.Fatal(err)
	}
	over, end := context.WithCancel(t.Context())
	end()
	must.Succeed(t, s.Run(over, clock.RealClock{}))
	d.stop()
	d.want(d.start().text(), "epoch 0")
	d.stop()
	must.Succeed(t, os.WriteFile(hubstate.Claims.Path(d.dir), old, 0o600))
	d.want(d.start().text(), "epoch 1 LedgerSetBack recovering=true accepted=false over=false")
}
