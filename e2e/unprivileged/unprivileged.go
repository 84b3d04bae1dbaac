// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package unprivileged lets the modes of files count in a test that root runs, as they do for other users.
package unprivileged

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"navix.sh/atoll/e2e/must"
)

// Goroutine makes the calling goroutine obey the modes of files until it ends. It has a thread of its own from then on, which ends with it;
// because capabilities are a thread's.
func Goroutine(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	must.Succeed(t, unix.Capget(&header, &sets[0]))
	sets[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	must.Succeed(t, unix.Capset(&header, &sets[0]))
}
