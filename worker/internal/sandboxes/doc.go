// SPDX-License-Identifier: Apache-2.0

// Package sandboxes manages sandboxes from their claim (package claim) until their end is recorded.
//
// In: calls, Changes of Pods, decisions of packages idle and pause. Out: sandboxes as callers see them, writes on Pods, terminal records.
// It keeps I6 and I13.
//
//	service.go   changes of Pods
//	running.go   waits until a sandbox runs
//	release.go   releases, and all other ends but timeouts
//	timeouts.go  activity, and ends by timeout
//	pause.go     pauses and resumes
//	resize.go    the writes of a pause
//	list.go
//	feed.go      changes, for watches
//	reach.go     where a sandbox runs
//	ended.go     terminal records
//	get.go       one sandbox, with events
//	locked.go    state under the lock
//	wait.go
//	metrics.go
//
// # Ends
//
//   - The write of a timeout happens under the lease and tests the state that it was decided from; because it must lose to a touch, another
//     timeout and a later leader (I6): TestI6OnlyALeaderEndsSandboxes, TestTheNextLeaderTakesTimeoutsOver,
//     TestI11ClocksThatAreOffChangeNoTimeout.
//   - One goroutine per sandbox (I10) tries again and again to end a sandbox that no caller received; because with firstActivityTimeout 0
//     nothing else does: TestUnreturnedSandboxesEnd, TestADisposalLooksAgain.
//   - A Pod with a command under way is replaced, not reset; because the API server may run the command in the next tenant's container
//     (I13): TestI13APodIsNotResetUnderACommand.
//   - The record is durable before the Pod goes: TestAFullDiskLosesNoRecordAndLeaksNoPod, TestRecordsOutliveTheWorker. Memory holds only
//     records that neither Pod nor disk has: TestAPodRemovedByForceIsRecorded.
//   - A release of a Pod that is to be replaced deletes the Pod if it has not changed since it was read, and stores the record before the
//     call returns; because a patch of the end first would be a third write for each sandbox: TestAReleaseIsOneWrite. The Pod gets its end
//     when its finalizer is removed, or if the record takes longer: TestTheNextLeaderKnowsWhyASandboxEnded. If the worker is killed before
//     either, within milliseconds, the record says that the Pod was deleted.
//   - Only the record of a key's holder stands for the key (I2).
//
// # Pause and waits
//
//   - A sandbox has one action at a time. A call for the same action joins it; a call for the opposite fails with UNAVAILABLE before any
//     write: TestPauseAndResumeAtOnce. An end wins.
//   - A call returns when the node has carried out, refused or deferred the action, or after 8 s; the action continues:
//     TestResumeThatIsDeferred.
//   - Each event and each new leader continues the action: TestANewLeaderGoesOnWithAPause.
//   - A failed write is repeated: TestPauseWhileTheAPIServerIsInTrouble. A permanently refused one is undone: TestCannotBePaused,
//     TestResumeThatAQuotaRefuses.
//   - A wait checks immediately, after each change, and finally by a live read; because events lag. Its watch is removed with the last
//     caller (I10).
//
// # Feeds
//
//   - A feed keeps the ids of changed sandboxes, not the changes (I10); so a slow feed gets the latest states.
//   - It begins with all existing sandboxes, marked under the lock under which it is registered; so it misses none.
//   - It ends with the term; because only a leader's index is complete: TestAFeedTellsWhatChanges.
package sandboxes
