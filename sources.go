// SPDX-License-Identifier: Apache-2.0

// Package atoll has the sources of the programs in it. A test that has them compiled imports it: go then runs the test again
// when a source has changed, and takes what it found before when none has.
package atoll

import "embed"

// What hub, worker and atollctl are compiled from, and what is applied to clusters with them.
//
//go:embed api cli examples hub kind-configs pkg sandboxd worker go.mod go.sum
var sources embed.FS

// The linker leaves out what is not used, and with it every difference between two test binaries.
var _, _ = sources.Open(".")
