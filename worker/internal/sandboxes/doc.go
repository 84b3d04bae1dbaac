// SPDX-License-Identifier: Apache-2.0

// Package sandboxes looks after what package claim has handed out, until there is a record of its end.
//
// In go calls about a sandbox, and Changes of Pods; out come what callers are shown, writes on Pods, and terminal records. Packages
// idle and pause decide; what they decide is carried out here.
//
//	service.go   what a change of a Pod means
//	pause.go     to less CPU and back; resize.go: by which writes
//	timeouts.go  activity, and ends by timeout
//	release.go   all other ends
//	running.go   until a sandbox can be used
//	list.go, reach.go, get.go
//	ended.go     terminal records
//	wait.go      until a sandbox changes
//
// # Ends
//
//   - A timeout's write tests what was decided from, and needs the lease; so it loses to a touch, another timeout and a later leader
//     (I6): TestI6OnlyALeaderEndsSandboxes, TestTheNextLeaderTakesTimeoutsOver, TestI11ClocksThatAreOffChangeNoTimeout.
//   - What no caller was told of is ended by one goroutine a sandbox (I10), which tries until it is written; because with
//     firstActivityTimeout 0 nothing else does: TestWhatNoCallerWasToldOfEndsInTheEnd, TestADisposalLooksAgain.
//   - A Pod under a command is replaced, not reset; because the API server may run it in the next tenant's container (I13):
//     TestI13APodIsNotResetUnderACommand.
//   - The record is durable before the Pod goes: TestAFullDiskLosesNoRecordAndLeaksNoPod, TestRecordsOutliveTheWorker. In memory is
//     only what no Pod shows and no disk has: TestAPodRemovedByForceIsRecorded.
//   - What ends beside the holder of its key is no record of the key (I2).
//
// # Pause
//
//   - A sandbox has one action at a time. The same is joined; the opposite is refused before anything is written, as UNAVAILABLE,
//     since a retry will do: TestPauseAndResumeAtOnce. An end wins over any.
//   - A call returns when the node has done it, says that it will not or not yet, or after 8 s; the action goes on:
//     TestResumeThatIsDeferred.
//   - Each event of the Pod, and each new leader, carries on what the annotation asks for: TestANewLeaderGoesOnWithAPause.
//   - A write that fails is repeated, one that is refused for good taken back: TestPauseWhileTheAPIServerIsInTrouble,
//     TestCannotBePaused, TestResumeThatAQuotaRefuses.
//
// # Waits
//
// Nothing polls. A wait asks at once, after each change in the index, and at last after a live read, since events lag. One watch a
// sandbox goes with its last caller (I10).
package sandboxes
