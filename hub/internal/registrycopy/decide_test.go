// SPDX-License-Identifier: Apache-2.0

package registrycopy

import (
	"testing"

	"navix.sh/atoll/pkg/hubstate"
)

func TestRemembered(t *testing.T) {
	ledger := func(epoch int32, restored bool) *hubstate.Ledger {
		return &hubstate.Ledger{Identity: hubstate.Identity{ID: "a", Epoch: epoch}, Restored: restored}
	}
	registry := func(epoch int32) *hubstate.Identity { return &hubstate.Identity{ID: "a", Epoch: epoch} }
	for name, tc := range map[string]struct {
		ledger             *hubstate.Ledger
		registry           *hubstate.Identity
		wanted, remembered bool // of a copy in epoch 5
	}{
		"nothing is left":                {nil, nil, true, true},
		"an earlier ledger alone":        {ledger(4, false), nil, true, true},
		"the same ledger alone":          {ledger(5, false), nil, true, false},
		"an earlier registry alone":      {nil, registry(4), false, true},
		"the same registry alone":        {nil, registry(5), false, false},
		"both are earlier":               {ledger(4, false), registry(4), false, true},
		"the registry is the same":       {ledger(4, false), registry(5), false, false},
		"the ledger is the same":         {ledger(5, false), registry(4), false, false},
		"both are earlier, of a backup":  {ledger(4, true), registry(4), true, true},
		"a backup's ledger, no registry": {ledger(6, true), nil, true, false},
	} {
		if got := wanted(tc.ledger, tc.registry); got != tc.wanted {
			t.Errorf("%s: wanted %t", name, got)
		}
		if got := remembered(hubstate.Identity{ID: "b", Epoch: 5}, tc.ledger, tc.registry); got != tc.remembered {
			t.Errorf("%s: remembered %t", name, got)
		}
	}
}
