// SPDX-License-Identifier: Apache-2.0

// Package idle decides when sandboxes end without a call: idle for too long, too old, or never used.
//
// In: live sandboxes with their timeouts, as package sandboxes sees them on Pods, and the activity that sources report. Out: ends
// with a typed reason, and times of activity to be written. It runs on the leader, keeps one entry per live sandbox and one timer
// for all (I10), and reads no source while nothing is due. It keeps I6 and I11 for timeouts.
//
//	decide.go  the pure decision, and how a life is taken over from an earlier leader
//	keeper.go  the lives, and when to look at them
//	look.go    a look: read the sources, decide, end
//
// # When a sandbox ends
//
//	IdleTimeout           after its last activity; without any, after it began to run
//	MaxLifetime           after its claim, running or not
//	FirstActivityTimeout  after it began to run, without any activity; for claims without a key, where a lost response
//	                      leaves a sandbox that no caller has
//
// Until a sandbox runs it has its startup timeout, which package pool enforces. All three timeouts end it as Released, by the
// same write as a release. The reason is the failure reason of the record.
//
//   - Activity is what callers record (TouchSandbox) and what sources report. A read of a sandbox is no activity, nor is a change
//     of its timeouts: a new timeout counts from the same moment as the old one.
//   - No sandbox ends for lack of activity while a source cannot be read (I6); held by TestI6NothingEndsWhileASourceIsSilent.
//   - No sandbox that is paused, pausing or resuming ends for lack of activity. Its idle time starts again when it has its CPU
//     back. Its lifetime continues; held by TestAPauseIsNotIdling.
//
// # Clocks (I11)
//
// Within one term all times are measured by the monotonic clock, from when the leader saw the claim, the start and the activity:
// at most a moment late, and no step of a clock matters. A sandbox is looked at once a second at most.
//
// A new leader has only the times on Pods and the current time, both of the API server's clock. Package apitime returns the age
// of such a time, across the steps of that clock. The age is taken over once, and is monotonic from then on; held by
// TestI11TakeOver and TestALaterLeaderIsLateAndNeverEarly.
//
//   - Times have whole seconds, rounded down twice. So 2 s are subtracted from each age, and another 2 s for a step that is too
//     small to be detected.
//   - A time that the clock showed twice, before a step back and after it, counts as the later one. A sandbox that was claimed
//     shortly before such a step may end late by the step. None ends early.
//
// # What is written
//
//   - The last activity is on the Pod. It is written again only when it is 23 s behind, and TouchSandbox returns after that
//     write; held by TestATouchIsAnsweredOnlyOnceItIsWrittenDown.
//   - Package podtunnel reports traffic through tunnels by Touch too, every 2 s while it lasts, but does not wait for the write:
//     3 s more.
//   - So a new leader can rely on it that the last activity was within 26 s after the written time. It assumes the latest moment,
//     and ends an idle sandbox up to 30 s late and never early. A sandbox without activity ends exactly on time.
//   - An etcd that was restored from a backup has lost activity. Then the caller calls Renew, and idle times start again.
//
// # Between a decision and its write
//
//   - A touch of a sandbox that is being ended waits for the result. If the sandbox stays, the touch counts; held by
//     TestATouchMeetsAnEnd.
//   - The write tests the timeouts and the last activity that the decision is based on. So it loses to a change of them, and to a
//     later leader (I6).
package idle
