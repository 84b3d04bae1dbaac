// SPDX-License-Identifier: Apache-2.0

package background

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// TestTheNewestReportEndsTheWorkOnOlderOnes, in whichever order their jobs begin.
func TestTheNewestReportEndsTheWorkOnOlderOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(clock.RealClock{}, logr.Discard())
		defer g.Close()
		var on Latest
		for range 100 {
			var ended [2]atomic.Bool
			for i := range ended {
				g.RetryUntilDone(&on, "east", time.Second, func() bool { return false }, func(ctx context.Context) error {
					<-ctx.Done()
					ended[i].Store(true)
					return nil
				})
			}
			synctest.Wait()
			if older, newer := ended[0].Load(), ended[1].Load(); !older || newer {
				t.Fatalf("the work on the older report has ended: %t, on the newer one: %t", older, newer)
			}
		}
	})
}
