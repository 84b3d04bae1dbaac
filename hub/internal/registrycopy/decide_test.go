// SPDX-License-Identifier: Apache-2.0

package registrycopy

import (
	"reflect"
	"testing"
	"time"

	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/segment"
)

// fullRecord has every field that a registry's record of a cluster can have and the document lacks.
func fullRecord(id, uid string) hubstate.Record {
	return hubstate.Record{
		ClusterID: id, UID: uid, Incarnation: 4, Term: "term", ResourceVersion: 9, RegisteredAt: time.Unix(1_800_000_000, 0).UTC(),
		Tombstones: []segment.Key{{Namespace: "ns", Name: "removed"}}, Draining: true, Keys: []string{"key"}, Trust: "trust", Issuer: "issuer",
	}
}

func TestCompleted(t *testing.T) {
	gone, scope := []hubstate.Forgotten{{UID: "former"}}, &hubstate.Scope{Teams: []string{"red"}}
	seen := []hubstate.Record{
		{ClusterID: "east", UID: "e", Forgotten: gone, RefusedKeys: []string{"refused"}, Scope: scope},
		{ClusterID: "north", UID: "n"},
		{ClusterID: "west", Forgotten: []hubstate.Forgotten{{UID: "w"}}},
	}
	east := fullRecord("east", "e")
	east.Forgotten, east.RefusedKeys, east.Scope = gone, []string{"refused"}, scope
	want := []hubstate.Record{seen[2], east, seen[1]}
	if got := completed(seen, []hubstate.Record{fullRecord("west", "w"), fullRecord("east", "e")}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	// A revocation since the backup holds: what the backup has as issued is older.
	seen[0].RevokedAt, want[1].RevokedAt, want[1].Keys = east.RegisteredAt, east.RegisteredAt, nil
	if got := completed(seen[:1], []hubstate.Record{fullRecord("east", "e")}); !reflect.DeepEqual(got, want[1:2]) {
		t.Errorf("after a revocation: got %+v\nwant %+v", got, want[1:2])
	}
}

func TestRegistryMustName(t *testing.T) {
	ledger := func(epoch int32, restored bool) *hubstate.Ledger {
		return &hubstate.Ledger{Identity: hubstate.Identity{ID: "a", Epoch: epoch}, Restored: restored}
	}
	registry := func(epoch int32) *hubstate.Identity { return &hubstate.Identity{ID: "a", Epoch: epoch} }
	for name, tc := range map[string]struct {
		ledger        *hubstate.Ledger
		registry      *hubstate.Identity
		wanted, named bool // of a copy in epoch 5
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
		if got := registryMustName(hubstate.Identity{ID: "b", Epoch: 5}, tc.ledger, tc.registry); got != tc.named {
			t.Errorf("%s: named %t", name, got)
		}
	}
}
