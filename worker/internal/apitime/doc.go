// SPDX-License-Identifier: Apache-2.0

// Package apitime reads the API server's clock from its responses, and returns the age of a time that it showed.
//
// In: the Date header of every response, and what an earlier leader left in the Lease. Out: Now, and ages (Since, Ago). It keeps
// I11: times that are persisted are the API server's, so that two workers with different clocks write one history, and a new
// leader can compute how long ago a time was written. Now advances by this process's monotonic clock between responses. Until the
// first response it is the local wall clock.
//
//	apitime.go   the clock, which notes the steps that it sees
//	steps.go     the age of a time, across steps (pure)
//	handover.go  what a process leaves to the next one, and how the next one uses it
//
// # A clock that is stepped
//
//   - Now follows a step, so that what is written matches the clocks of other writers. So the difference of two of its times is
//     no age.
//   - Since is an age: it takes the steps into account. It is too large by 2 s at most, which is too little to be detected as a
//     step; held by TestI11Since.
//   - A time less an age is not what the clock showed then. Ago is; held by TestAgo.
//   - A time that the clock has shown twice, before a step back and after it, or may have, counts as the later one; held by
//     TestI11AgesAcrossSteps.
//
// # Across leaders
//
// A new leader also needs the steps that an earlier leader saw, and a step while no worker ran. So a leader records its steps and
// three clocks: the API server's, its own wall clock, and its machine's uptime. Package lease writes them with each renewal,
// without an extra write, and the next process reads them before it leads; held by TestI11Inherit.
//
//   - On the same machine, uptime shows how long no worker ran.
//   - On another machine, the API server's clock and the wall clock show it, if they agree to within 5 s.
//   - If they do not agree, one of them was stepped or two machines differ, and no time counts as passed. Ages are too small by
//     the time without a leader, so timeouts fire that much later, and not earlier.
//   - Both clocks stepped by the same amount while no worker ran, and a next process on another machine: this cannot be detected.
//
// API servers of one cluster that differ by seconds look like a clock that is stepped to and fro. 16 steps are remembered, and by
// how much older stretches may differ, which is subtracted from ages; held by TestI10StepsAreBounded.
package apitime
