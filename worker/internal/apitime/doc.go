// SPDX-License-Identifier: Apache-2.0

// Package apitime reads the API server's clock from its responses, and returns the ages of times that it showed.
//
// In: the Date header of responses, and an earlier leader's clocks. Out: Now, and ages (Since, Ago). It keeps I11: persisted times are the
// API server's, because workers with different clocks write one history. Now is monotonic between responses. Before the first response it
// is the wall clock.
//
//	apitime.go   the clock and its steps
//	steps.go     ages across steps (pure)
//	handover.go  from one process to the next
//
// # A clock that is stepped
//
//   - Now follows a step; because other writers do. So the difference of two of its times is not an age.
//   - Since is an age, too large by at most 2 s, for undetectable steps: TestI11Since.
//   - A time less an age is not what the clock showed then; Ago is: TestAgo.
//   - A time that the clock may have shown twice counts as the later one: TestI11AgesAcrossSteps.
//   - 16 steps are remembered, and the span of older ones is subtracted from ages; because API servers whose clocks differ look like many
//     steps: TestI10StepsAreBounded.
//
// # Across leaders
//
// Without the handover, the next leader would take a step for time that has passed: after a step of ten minutes forward, it would end
// sandboxes, drop ended records and remove idle Pods ten minutes too early; after a step back, too late.
//
// The Lease carries a leader's steps, the API server's clock, its wall clock and its machine's uptime to the next process: TestI11Inherit.
// The time without a worker is
//
//   - on the same machine, the difference of uptimes;
//   - on another, that of the API server's and the wall clock, if they agree to within 5 s;
//   - otherwise zero; because timeouts may fire late, not early.
//
// Equal steps of both clocks while no worker runs, before a start on another machine, cannot be detected.
package apitime
