// SPDX-License-Identifier: Apache-2.0

// Package wallclock is the clock of hub and worker, and how they wait on one.
//
// It is the system's. Only with the build tag atolltest, ATOLL_TEST_CLOCK_OFFSET shifts it (package offset), for tests of I11.
package wallclock
