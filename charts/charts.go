// SPDX-License-Identifier: Apache-2.0

// Package charts has the charts in it. A test that has helm or kubectl read them imports it: go then runs the test again when a
// chart has changed, and takes what it found before when none has.
package charts

import "embed"

//go:embed all:hub all:worker
var files embed.FS

// The linker leaves out what is not used, and with it every difference between two test binaries.
var _, _ = files.Open(".")
