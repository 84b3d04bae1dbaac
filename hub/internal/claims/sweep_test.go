// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/pkg/store"
)

// I10: one sweep drops all that has expired, and nothing else.
func TestASweepDropsAllThatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, file := newFederation(t, map[string]int32{"east": 3}), store.NewMemory()
		f.hub.ledger = ledger.New(file)
		keep := func(key string, expiresIn time.Duration) {
			_, err := f.hub.ledger.Save(t.Context(), ledger.KeyHash("", "default", key), ledger.Held{}, &ledger.Record{
				Cluster: "east", Attempt: 1, State: ledger.Ended, ExpireAt: time.Now().Add(expiresIn),
			})
			must.Succeed(t, err)
		}
		for n := range 2500 {
			keep(fmt.Sprint(n), -time.Hour)
		}
		keep("later", time.Hour)
		defer runHub(t, f.hub)()
		time.Sleep(sweepEvery + time.Second)
		synctest.Wait()
		left, err := file.Range(t.Context(), ledger.ClaimPrefix, "", 0)
		if err != nil || len(left) != 1 || f.record("later") == nil {
			t.Errorf("%d keys are left, want one: %v", len(left), err)
		}
		if n := f.hub.ledger.Usage("").Keys; n != 1 {
			t.Errorf("%d keys count against the quota", n)
		}
	})
}
