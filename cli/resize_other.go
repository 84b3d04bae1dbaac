// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import "os"

// onResize tells nothing where there is no signal for it: the size stays what it was at first.
func onResize() (resized <-chan os.Signal, stop func()) { return nil, func() {} }
