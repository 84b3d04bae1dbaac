// SPDX-License-Identifier: Apache-2.0

// Package apitime reads the API server's clock from the answers it gives anyway, and tells how long ago it showed a time.
//
// Times that are persisted are the API server's, so that two workers whose own clocks differ write one history, and a new
// leader can tell how long ago something was written (I11). The header Date of every response comes in; Now goes on from
// it by this process's monotonic clock. Until the first response it is the local wall clock.
//
// # A clock that is stepped
//
// Now follows a step, so that what is written down is what everybody else's clocks say. The difference of two of its times is
// therefore no age; Since is: it knows where the clock was stepped, and what it answers is too much by 2 s at most, which is
// too little to be seen as a step. Nor is a time less an age what the clock showed then; Ago is. A time that the clock has
// shown twice, before a step back and after it, or may have, counts as the later one.
//
//	apitime.go  the clock; it notes steps as it sees them
//	steps.go    the age of a time, across steps (pure)
//	handover.go what a process leaves to the next one, and what the next one makes of it
//
// Steps that an earlier leader saw, and one that nobody saw since none ran, have to be known as well. So a leader leaves what
// it knows, and what three clocks show at the moment: the API server's, its own wall clock, and its machine's uptime. Package
// lease writes that with each renewal, at no write more, and the next process reads it before it leads. On the same machine
// uptime tells how long nobody looked. On another one the API server's clock and the wall clock tell, if they agree to within
// 5 s. If they do not, one of them was stepped or two machines disagree, and nothing counts as passed: ages are less by the
// time without a leader, so things happen that much later, and not earlier. That both clocks were stepped by the same amount
// while no worker ran, and the next one started on another machine, cannot be told.
//
// API servers of one cluster that disagree by seconds look like a clock that is stepped to and fro. 16 steps are remembered, and
// by how much older stretches may differ, which ages are less by.
package apitime
