// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package apitime

import "time"

var processStarted = time.Now()

// UpTime is Go's monotonic clock, which counts suspend on macOS and Windows only in part. Workers run on Linux; other systems are
// for development.
func UpTime() time.Duration { return time.Since(processStarted) }

// BootID is empty: UpTime begins with the process.
func BootID() string { return "" }
