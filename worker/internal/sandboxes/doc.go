// SPDX-License-Identifier: Apache-2.0

// Package sandboxes manages what package claim has handed out, until there is a record of its end.
//
// In: calls, Changes of Pods, decisions of packages idle and pause. Out: sandboxes as callers see them, writes on Pods, terminal records.
// It keeps I6 and I13.
//
//	service.go   changes of Pods
//	running.go   wait until one runs
//	release.go   all other ends
//	timeouts.go  activity, and ends by timeout
//	pause.go
//	resize.go    its writes
//	list.go
//	feed.go      changes, for watches
//	reach.go     where a sandbox is
//	ended.go     terminal records
//	get.go       one, with events
//	locked.go    state under the lock
//	wait.go
//	metrics.go
//
// # Ends
//
//   - The write of a timeout tests what it was decided from, under the lease; because it must lose to a touch, another timeout and a later
//     leader (I6): TestI6OnlyALeaderEndsSandboxes, TestTheNextLeaderTakesTimeoutsOver, TestI11ClocksThatAreOffChangeNoTimeout.
//   - A goroutine per sandbox (I10) retries the end of one that was returned to no caller; because with firstActivityTimeout 0 nothing else
//     does: TestWhatNoCallerWasToldOfEndsInTheEnd, TestADisposalLooksAgain.
//   - A Pod under a command is replaced, not reset; because the API server may run it in the next tenant's container (I13):
//     TestI13APodIsNotResetUnderACommand.
//   - The record is durable before the Pod goes: TestAFullDiskLosesNoRecordAndLeaksNoPod, TestRecordsOutliveTheWorker; only records that
//     neither Pod nor disk has are in memory: TestAPodRemovedByForceIsRecorded.
//   - A release deletes a Pod that is replaced, as it was seen, and keeps the record before its caller is told; because a patch of the end
//     first would be a third write for each sandbox: TestAReleaseIsOneWrite. The Pod shows its end with the removal of its finalizer, or if
//     the record takes longer: TestTheNextLeaderKnowsWhyASandboxEnded. If the worker is killed before either, within milliseconds, the
//     record says that the Pod was deleted.
//   - Only the record of a key's holder stands for the key (I2).
//
// # Pause and waits
//
//   - A sandbox has one action at a time. A call for it joins; the opposite fails with UNAVAILABLE before any write:
//     TestPauseAndResumeAtOnce. An end wins.
//   - A call returns when the node has done, refused or deferred it, or after 8 s; the action continues: TestResumeThatIsDeferred.
//   - Each event and each new leader continues the action: TestANewLeaderGoesOnWithAPause.
//   - A write that fails is repeated: TestPauseWhileTheAPIServerIsInTrouble; one permanently refused is taken back: TestCannotBePaused,
//     TestResumeThatAQuotaRefuses.
//   - A wait checks at once, after each change, and last by a live read; because events lag. Its watch goes with the last caller (I10).
//
// # Feeds
//
//   - A feed keeps the ids of what has changed, not the changes (I10); so a slow one gets the latest states.
//   - It begins with all that is there, marked under the lock under which it is registered; so it misses nothing.
//   - It ends with the term; because only a leader's index is complete: TestAFeedTellsWhatChanges.
package sandboxes
