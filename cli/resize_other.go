// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import "os"

// onResize never signals on systems without such a signal: the size stays as at the start.
func onResize() (resized <-chan os.Signal, stop func()) { return nil, func() {} }
