// SPDX-License-Identifier: Apache-2.0

// Package boottime reads the one clock of a machine that nobody sets: how long it has been up.
package boottime
