// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navix.sh/atoll/pkg/store"
)

func TestRecordsAreCountedByState(t *testing.T) {
	f := newFederation(t, nil)
	var txn store.Txn
	for i := range 2 * countPage {
		txn.Puts = append(txn.Puts, store.Put{Key: fmt.Sprintf("%s%04d", claimPrefix, i), Value: []byte(`{"state":"answered","attempt":1}`)})
	}
	for i, damaged := range []string{`{"state":"odd"}`, `{}`, `{"sta`, ""} {
		txn.Puts = append(txn.Puts, store.Put{Key: fmt.Sprintf("%sx%d", claimPrefix, i), Value: []byte(damaged)})
	}
	txn.Puts = append(txn.Puts, store.Put{Key: claimPrefix + "y", Value: []byte(`{"state":"ended"}`)}, store.Put{Key: idPrefix + "y"})
	if _, err := f.store.Commit(t.Context(), txn); err != nil {
		t.Fatal(err)
	}
	counts, err := f.hub.ledger.count(t.Context())
	want := map[state]int{stateAnswered: 2 * countPage, stateEnded: 1, stateDamaged: 4, statePending: 0, stateRefused: 0}
	if diff := cmp.Diff(want, counts); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
