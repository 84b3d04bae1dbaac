// SPDX-License-Identifier: Apache-2.0

package localapi

import (
	"context"
	"testing"
	"testing/synctest"
)

// A call that ends its key's sandbox is alone with it: calls before it keep the sandbox, and calls after it begin when it has ended.
func TestCallersOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c callers
		enter := func(ctx context.Context) (*calling, func()) {
			one, leave, err := c.enter(ctx, "k")
			if err != nil {
				t.Error(err)
			}
			return one, leave
		}
		a, leaveA := enter(t.Context())
		b, leaveB := enter(t.Context())
		leaveB()
		if c.beginRelease(a) || c.beginRelease(b) {
			t.Error("a call ended what another one may have returned")
		}
		leaveA()
		alone, leave := enter(t.Context())
		if !c.beginRelease(alone) {
			t.Error("a call that met no other one did not end its sandbox")
		}
		began := false
		go func() {
			_, end := enter(t.Context())
			began = true
			end()
		}()
		synctest.Wait()
		if began {
			t.Error("a call began while another one ended its sandbox")
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := c.enter(gone, "k"); err == nil {
			t.Error("a call whose caller has left did not end")
		}
		leave()
		synctest.Wait()
		if !began || len(c.under) != 0 {
			t.Errorf("began: %v; %d keys are kept, want none", began, len(c.under))
		}
	})
}
