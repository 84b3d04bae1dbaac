// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package store

import "os"

// letGo closes a file that bbolt had opened when it panicked.
func letGo(file *os.File) { _ = file.Close() }
