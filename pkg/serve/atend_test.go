// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestAtEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ends := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			calls := 0
			wait := AtEnd(ctx, func() { calls++ })
			if ends {
				cancel()
				synctest.Wait()
				if calls != 1 {
					t.Errorf("called %d times at the end of the context", calls)
				}
			}
			wait()
			cancel()
			synctest.Wait()
			if calls != 1 {
				t.Errorf("ended %t: called %d times", ends, calls)
			}
		}
	})
}
