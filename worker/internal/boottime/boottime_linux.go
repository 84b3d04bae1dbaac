// SPDX-License-Identifier: Apache-2.0

package boottime

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var started = time.Now()

// Now is CLOCK_BOOTTIME: monotonic, and it counts suspend. Go's own monotonic clock does not.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(started) // not reached: every Linux that runs Go has this clock
	}
	return time.Duration(ts.Nano())
}

// ID names this start of this machine, for all of its containers; empty: unknown. Only times of Now under one ID can be
// compared between processes.
var ID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})
