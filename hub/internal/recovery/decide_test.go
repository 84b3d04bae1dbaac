// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"fmt"
	"math"
	"testing"

	"navix.sh/atoll/pkg/hubstate"
)

func TestDecidePairing(t *testing.T) {
	ledger := func(id string, epoch int32, restored bool) *hubstate.Ledger {
		return &hubstate.Ledger{Identity: hubstate.Identity{ID: id, Epoch: epoch}, Restored: restored}
	}
	registry := func(id string, epoch int32) *hubstate.Identity { return &hubstate.Identity{ID: id, Epoch: epoch} }
	for name, tc := range map[string]struct {
		ledger   *hubstate.Ledger
		registry *hubstate.Identity
		setBack  bool
		want     string
	}{
		"nothing":                   {nil, nil, false, "Fresh  0"},
		"no ledger":                 {nil, registry("a", 2), false, "Recovers LedgerLost 3"},
		"no registry":               {ledger("a", 2, false), nil, false, "RegistryLost  2"},
		"restored, and no registry": {ledger("a", 2, true), nil, false, "Recovers LedgerRestored 3"},
		"restored":                  {ledger("a", 2, true), registry("a", 4), false, "Recovers LedgerRestored 5"},
		"restored, later":           {ledger("a", 4, true), registry("a", 2), true, "Recovers LedgerRestored 5"},
		"of another":                {ledger("a", 2, false), registry("b", 3), false, "Recovers LedgerReplaced 4"},
		"set back":                  {ledger("a", 2, false), registry("a", 2), true, "Recovers LedgerSetBack 3"},
		"paired":                    {ledger("a", 2, false), registry("a", 3), false, "Paired  3"},
	} {
		p, cause, epoch := decidePairing(tc.ledger, tc.registry, tc.setBack)
		if got := fmt.Sprint(p, " ", cause, " ", epoch); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestEpochsHaveRoom: every attempt of every epoch is a number, and no epoch is left over.
func TestEpochsHaveRoom(t *testing.T) {
	if last := int64(FirstAttempt(maxEpoch)) + attemptsPerEpoch - 1; last > math.MaxInt32 || last+attemptsPerEpoch <= math.MaxInt32 {
		t.Errorf("the last epoch %d ends at attempt %d", maxEpoch, last)
	}
	for began, want := range map[int32]int32{0: 8, 10: 18, 98: 106, 99: 106, 106: 106, 107: 107, 200: 200} {
		if got := lastLost(began); got != want {
			t.Errorf("the last epoch that can be lost in a recovery from %d is %d, want %d", began, got, want)
		}
	}
}
