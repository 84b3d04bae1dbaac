// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/store"
)

func TestRecordsAreCountedByState(t *testing.T) {
	file := workertest.OpenStore(t, "claims")
	var txn store.Txn
	for i := range 2 * countPage {
		txn.Puts = append(txn.Puts, store.Put{Key: fmt.Sprintf("%s%04d", ClaimPrefix, i), Value: []byte(`{"state":"answered","attempt":1}`)})
	}
	for i, damaged := range []string{`{"state":"odd"}`, `{}`, `{"sta`, ""} {
		txn.Puts = append(txn.Puts, store.Put{Key: fmt.Sprintf("%sx%d", ClaimPrefix, i), Value: []byte(damaged)})
	}
	txn.Puts = append(txn.Puts, store.Put{Key: ClaimPrefix + "y", Value: []byte(`{"state":"ended"}`)}, store.Put{Key: IDPrefix + "y"})
	_, err := file.Commit(t.Context(), txn)
	must.Succeed(t, err)
	counts, err := New(file).Count(t.Context())
	want := map[State]int{Returned: 2 * countPage, Ended: 1, Damaged: 4, Pending: 0, Refused: 0, Unproven: 0}
	if diff := cmp.Diff(want, counts); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestAllOpenClaimsAreListed: one beyond the first page would never be resumed.
func TestAllOpenClaimsAreListed(t *testing.T) {
	const n = store.MaxRange + 1
	file := workertest.OpenStore(t, "claims")
	var txn store.Txn
	for i := range n {
		txn.Puts = append(txn.Puts, store.Put{Key: fmt.Sprintf("%s%05d", openPrefix, i), Value: []byte("hub-0")})
	}
	_, err := file.Commit(t.Context(), txn)
	must.Succeed(t, err)
	open, err := New(file).Open(t.Context())
	must.Succeed(t, err)
	if len(open) != n {
		t.Fatalf("%d open claims, want %d", len(open), n)
	}
	if last := open[n-1]; last.KeyHash != fmt.Sprint(n-1) || last.Replica != "hub-0" {
		t.Errorf("the last is %+v", last)
	}
}

func TestKeyHashIsWhatLabelsCarry(t *testing.T) {
	// printf 't\0ns\0k' | sha256sum | cut -c-32
	if got := KeyHash("t", "ns", "k"); got != "e0a2fa2b7b61d5c77a62f520373e8cf6" {
		t.Errorf("%s", got)
	}
	if KeyHash("a", "b", "") == KeyHash("a", "", "b") || KeyHash("", "ab", "c") == KeyHash("a", "b", "c") {
		t.Error("parts run into each other")
	}
}

// The index's entries sort by time, and reading returns what was written.
func FuzzExpireKey(f *testing.F) {
	f.Add(int64(0), int64(1), "claim/x")
	f.Add(int64(-1), int64(1<<40), "")
	f.Fuzz(func(t *testing.T, a, b int64, subject string) {
		at, got, err := parseExpireKey(expireKey(time.Unix(a, 0), subject))
		if err != nil || got != subject || at.Unix() != a {
			t.Fatalf("%d %q comes back as %d %q (%v)", a, subject, at.Unix(), got, err)
		}
		const most = 1 << 36 // twelve digits: the year 3000 is within
		if a >= 0 && a < b && b < most && expireKey(time.Unix(a, 0), subject) >= expireKey(time.Unix(b, 0), subject) {
			t.Fatalf("%d sorts after %d", a, b)
		}
		_, _, _ = parseExpireKey(subject)
	})
}
