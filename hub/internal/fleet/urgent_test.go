// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"navix.sh/atoll/e2e/must"
)

// TestI14AnUrgentRecordIsSavedAlone: the others are saved when they are due.
func TestI14AnUrgentRecordIsSavedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := &memoryRegistry{}
		f := newFleet(t, registry)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		synctest.Wait()
		east, west := connected(t, f, "east", envs(2)...), connected(t, f, "west", envs(2)...)
		saved := func() (trust string, stones int) {
			registry.mu.Lock()
			defer registry.mu.Unlock()
			return registry.records["east"].Trust, len(registry.records["west"].Tombstones)
		}
		west.remove(env(0))
		east.session.Trusted("hash")
		time.Sleep(soonPause)
		synctest.Wait()
		if trust, stones := saved(); trust != "hash" || stones != 0 {
			t.Errorf("after %s east trusts %q, and west has %d tombstones; want the record of east alone", soonPause, trust, stones)
		}
		time.Sleep(saveInterval)
		synctest.Wait()
		if _, stones := saved(); stones != 1 {
			t.Errorf("after %s west has %d tombstones", saveInterval, stones)
		}
		cancel()
		must.Succeed(t, <-done)
	})
}
