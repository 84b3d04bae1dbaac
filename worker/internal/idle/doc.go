// SPDX-License-Identifier: Apache-2.0

// Package idle knows when sandboxes end by themselves: idle for too long, too old, or never used.
//
// In go live sandboxes with their timeouts, as package sandboxes sees them on Pods, and what sources say of their activity; out
// come ends with a typed reason, and times of activity to be written down. It runs on the leader, keeps an entry for each live
// sandbox and one timer for all (I10), and asks nobody as long as nothing is due.
//
//	decide.go  the pure decision, and how a life is taken over from an earlier leader
//	keeper.go  the lives, and when to look at them
//	look.go    a look: ask the sources, decide, end
//
// # When a sandbox ends
//
//	IdleTimeout           so long since its last activity, at first since it runs
//	MaxLifetime           so long since its claim, whether it runs or not
//	FirstActivityTimeout  so long since it runs without any activity; for claims without a key, of which an answer that
//	                      got lost leaves a sandbox that nobody was told of
//
// Until it runs a sandbox has its startup timeout, which is package pool's. All three end it as Released, by the write that a
// release is; the reason is the record's failure reason.
//
// Activity is what callers record (TouchSandbox) and what sources know of. Looking at a sandbox is none, nor is changing its
// timeouts: a new one counts from where the old one did. While a source cannot be asked, nothing ends for want of activity.
//
// A sandbox that is paused, or on its way to or from that, does not end for want of activity, and its idle time begins anew
// when it has its CPU back. Its lifetime goes on.
//
// # The rule about clocks (I11)
//
// Within one leadership all is measured on the monotonic clock, from when the leader saw the claim, the start and the
// activity: at most a moment too late, and no clock that is stepped anywhere matters. A look is taken at most once a second.
//
// A new leader has nothing but the times on Pods, by the API server's clock, and the same clock now. How long ago that was
// package apitime tells, which knows of steps of that clock; this age is taken over, once, and from there on it is monotonic
// again. Times have whole seconds, rounded down twice, so 2 s are taken off each age, and 2 s for what is too little to be seen
// as a step. A time that the clock has shown twice, before a step back and after, counts as the later one: what was claimed
// shortly before such a step may end late by the step, and nothing ends early.
//
// # What is written down
//
// The last activity stands on the Pod, and is written again only when it is 23 s behind. TouchSandbox that finds it so far
// behind is answered after that write. Talk through tunnels is told by Touch too, every 2 s while it lasts, but does not wait
// for the write: 3 s more. So a new leader knows that the last activity was within 26 s after what is written down, takes the
// latest moment, and ends an idle sandbox up to 30 s late and never early. A sandbox that nobody touched has its time exactly.
//
// An etcd that was set back has lost activity. Who knows of that calls Renew, and idle times begin anew.
//
// # Between a decision and its write
//
// A touch that finds a sandbox being ended waits for what comes of it: if the sandbox stays, it counts. The write tests the
// timeouts and the last activity that were decided from, so that it loses to a change of them, and to a later leader (I6).
package idle
