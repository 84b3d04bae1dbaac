// SPDX-License-Identifier: Apache-2.0

// Package sandboxes manages what package claim has handed out, until there is a record of its end.
//
// In: calls about a sandbox, and Changes of Pods. Out: sandboxes as callers see them, writes on Pods, and terminal records.
// Packages idle and pause decide; this package carries out their decisions. It keeps I6 and I13.
//
//	service.go   the Service, and what a change of a Pod means
//	running.go   wait until a sandbox can be used
//	release.go   all other ends
//	timeouts.go  activity, and ends by timeout
//	pause.go     pause and resume
//	resize.go    the writes of a pause or a resume
//	list.go      pages of sandboxes
//	reach.go     where a running sandbox is, and when it can no longer be reached
//	ended.go     terminal records
//	get.go       one sandbox, and the events of its Pod
//	locked.go    the state under the inventory's lock
//	wait.go      wait until a sandbox changes
//	metrics.go   metrics
//
// # Ends
//
//   - The write of a timeout tests what was decided from, and needs the lease; because it must lose to a touch, to another
//     timeout and to a later leader (I6); held by TestI6OnlyALeaderEndsSandboxes, TestTheNextLeaderTakesTimeoutsOver,
//     TestI11ClocksThatAreOffChangeNoTimeout.
//   - One goroutine per sandbox (I10) ends a sandbox that was returned to no caller, and retries until the end is written;
//     because with firstActivityTimeout 0 nothing else does; held by TestWhatNoCallerWasToldOfEndsInTheEnd,
//     TestADisposalLooksAgain.
//   - A Pod under a command is replaced, not reset; because the API server may run the command in the next tenant's container
//     (I13); held by TestI13APodIsNotResetUnderACommand.
//   - The record is durable before the Pod is removed; held by TestAFullDiskLosesNoRecordAndLeaksNoPod,
//     TestRecordsOutliveTheWorker. Only records that no Pod shows and no disk has are in memory; held by
//     TestAPodRemovedByForceIsRecorded.
//   - The record of a sandbox that is not the holder of its key does not stand for the key (I2).
//
// # Pause
//
//   - A sandbox has one action at a time. A call for the same action joins it. A call for the opposite fails with UNAVAILABLE
//     before anything is written; because a retry helps; held by TestPauseAndResumeAtOnce. An end wins over any action.
//   - A call returns when the node has done it, when the node refuses or defers it, or after 8 s. The action continues; held by
//     TestResumeThatIsDeferred.
//   - Each event of the Pod, and each new leader, continues what the annotation requests; held by TestANewLeaderGoesOnWithAPause.
//   - A write that fails is repeated; held by TestPauseWhileTheAPIServerIsInTrouble. A write that is permanently refused is taken
//     back; held by TestCannotBePaused, TestResumeThatAQuotaRefuses.
//
// # Waits
//
// Nothing polls. A wait checks at once, after each change in the index, and finally after a live read, because events lag. One
// watch per sandbox is removed with its last caller (I10).
package sandboxes
