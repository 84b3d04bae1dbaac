// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package boottime

import "time"

var started = time.Now()

// Now is Go's monotonic clock, which counts suspend on macOS and Windows only in part. Workers run on Linux; elsewhere they
// are for development.
func Now() time.Duration { return time.Since(started) }

// ID is empty: Now begins with the process.
func ID() string { return "" }
