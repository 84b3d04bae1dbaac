// SPDX-License-Identifier: Apache-2.0

// Package idle decides when sandboxes end without a call: idle for too long, too old, or never used.
//
// In: live sandboxes with their timeouts, and activity. Out: ends with a reason, and times of activity to write. It runs on the leader,
// with an entry per sandbox and one timer (I10). It keeps I6 and I11 for timeouts.
//
//	decide.go   the decision (pure)
//	monitor.go  when to check
//	look.go     one check
//
// # When a sandbox ends
//
//	IdleTimeout           after its last activity; without any, after it began to run
//	MaxLifetime           after its claim, running or not
//	FirstActivityTimeout  after it began to run, without activity; for claims without a key
//
// The sandbox ends as Released, with the reason in the record.
//
//   - Activity is what callers record (TouchSandbox) and sources report. A read or a change of timeouts is no activity.
//   - No sandbox ends for lack of activity while a source cannot be read (I6): TestI6NothingEndsWhileASourceIsSilent; nor during a pause,
//     after which idle time, but not lifetime, starts again: TestAPauseIsNotIdling.
//
// # Clocks (I11)
//
//   - Within a term times are monotonic, from when the leader saw the event.
//   - A new leader takes ages over once, from package apitime, less 4 s for rounding and undetectable steps; because sandboxes may end
//     late, never early: TestI11TakeOver, TestALaterLeaderIsLateAndNeverEarly.
//
// # Writes
//
//   - Activity is written when the Pod's time is 23 s behind, and TouchSandbox returns after the write:
//     TestATouchReturnsOnlyOnceItIsWritten. Package podtunnel reports traffic every 2 s and waits for no write, so the written time may be
//     3 s further behind.
//   - So a new leader assumes activity until 26 s after the written time, and an idle sandbox ends up to 30 s late.
//   - After a restore of etcd, Renew restarts idle times; because activity is lost.
//   - A touch of a sandbox that is being ended waits, and counts if the sandbox stays: TestATouchMeetsAnEnd.
//   - The write of an end tests its timeouts and activity; because it must lose to a change of them and to a later leader (I6).
package idle
