// SPDX-License-Identifier: Apache-2.0

//go:build unix

package store

import (
	"os"
	"syscall"
)

// letGo closes a file that bbolt had opened when it panicked. Closing alone leaves the lock; because the file is still mapped.
func letGo(file *os.File) {
	_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
	_ = file.Close()
}
