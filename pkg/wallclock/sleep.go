// SPDX-License-Identifier: Apache-2.0

package wallclock

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Left returns the time left until ctx's deadline, and whether ctx has one. It uses the system's clock, as contexts do, even if another
// clock is injected elsewhere.
func Left(ctx context.Context) (time.Duration, bool) {
	deadline, ok := ctx.Deadline()
	return time.Until(deadline), ok
}

// Sleep waits for d on the given clock. If ctx ends first, it returns ctx's error.
func Sleep(ctx context.Context, on clock.Clock, d time.Duration) error {
	timer := on.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
