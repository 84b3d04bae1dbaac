// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package apitime

import "time"

var processStarted = time.Now()

// UpTime returns Go's monotonic clock, which counts suspend only in part on macOS and Windows. Workers run on Linux; other systems are for
// development.
func UpTime() time.Duration { return time.Since(processStarted) }

// BootID returns "", because UpTime begins with the process.
func BootID() string { return "" }
