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

// UpTime returns CLOCK_BOOTTIME, which is monotonic and counts suspend. Go's own monotonic clock does not count suspend.
func UpTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(processStarted) // unreachable: every Linux that runs Go has this clock
	}
	return time.Duration(ts.Nano())
}

// BootID returns an id of this start of this machine, shared by all of its containers, or "" if it is unknown. Times of UpTime can be
// compared between processes only with the same ID.
var BootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})
