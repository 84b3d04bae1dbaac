// SPDX-License-Identifier: Apache-2.0

//go:build unix

package store

import (
	"os"
	"syscall"
)

// letGo closes a file that bbolt had opened when it panicked. It unlocks the file first, because the file is still mapped and closing it
// alone would keep the lock.
func letGo(file *os.File) {
	_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
	_ = file.Close()
}
