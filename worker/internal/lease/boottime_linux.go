// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

var started = time.Now()

// boottime is CLOCK_BOOTTIME: monotonic, and it counts suspend. Go's own monotonic clock does not.
func boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(started) // not reached: every Linux that runs Go has this clock
	}
	return time.Duration(ts.Nano())
}
