// SPDX-License-Identifier: Apache-2.0

package apitime

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var processStarted = time.Now()

// UpTime is CLOCK_BOOTTIME: monotonic, and it counts suspend. Go's own monotonic clock does not.
func UpTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(processStarted) // not reached: every Linux that runs Go has this clock
	}
	return time.Duration(ts.Nano())
}

// BootID identifies this start of this machine, for all of its containers; empty: unknown. Times of UpTime can be compared
// between processes only under one ID.
var BootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})
