// SPDX-License-Identifier: Apache-2.0

// Package wallclock provides the clock of hub and worker, and functions to wait on a clock.
//
// The clock is the system's. Only with the build tag atolltest, ATOLL_TEST_CLOCK_OFFSET shifts it (package offset), for tests of I11.
package wallclock
