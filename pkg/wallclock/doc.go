// SPDX-License-Identifier: Apache-2.0

// Package wallclock is the clock of hub and worker, and how they wait on one.
//
// It is the system's clock. Only in programs built with the tag atolltest, ATOLL_TEST_CLOCK_OFFSET shifts it (package offset):
// tests of I11 run programs whose clocks differ, and step them.
package wallclock
