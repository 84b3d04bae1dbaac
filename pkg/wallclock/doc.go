// SPDX-License-Identifier: Apache-2.0

// Package wallclock is where hub and worker take their clock from, and how they wait on one.
//
// It is the system's. In programs built with the tag atolltest, and in no others, ATOLL_TEST_CLOCK_OFFSET sets what the
// clock shows ahead or back, see package offset: tests of I11 run programs that disagree about the time, and step it.
package wallclock
