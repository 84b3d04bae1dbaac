// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package lease

import "time"

var started = time.Now()

// boottime is Go's monotonic clock, which counts suspend on macOS and Windows only in part. Workers run on Linux;
// elsewhere they are for development.
func boottime() time.Duration { return time.Since(started) }
