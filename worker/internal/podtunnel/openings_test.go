// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"navix.sh/atoll/e2e/must"
)

// An account that opens many conversations waits for its own, and delays no other account. What does not wait any more takes no turn.
func TestI14AnAccountOpensFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o openings
		var ends []func()
		for range openingsAtOnce {
			end, err := o.begin(t.Context(), "mallory")
			must.Succeed(t, err)
			ends = append(ends, end)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the caller has gone"))
		defer cancel()
		if _, err := o.begin(ctx, "mallory"); err == nil || err.Error() != "the caller has gone" {
			t.Fatalf("one more got %v, want its context's cause", err)
		}
		end, err := o.begin(t.Context(), "ann")
		must.Succeed(t, err)
		end()
		waiting := make(chan error)
		go func() {
			end, err := o.begin(t.Context(), "mallory")
			if err == nil {
				defer end()
			}
			waiting <- err
		}()
		synctest.Wait()
		select {
		case err := <-waiting:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		ends[0]()
		ends[0]() // a second time frees nothing
		must.Succeed(t, <-waiting)
		for _, end := range ends {
			end()
		}
		if len(o.of) > 0 {
			t.Errorf("%d accounts are kept", len(o.of))
		}
	})
}
