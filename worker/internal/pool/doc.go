// SPDX-License-Identifier: Apache-2.0

// Package pool reconciles the Pods of SandboxPools, each from its creation to its terminal record.
//
// In: a pool, its Pods, the ages of their stages, and writes not seen yet. Out: writes to Pods, the pool's status, Events, terminal
// records.
//
//	gather.go
//	reconciler.go
//	metrics.go
//	decide.go        verbs on Pods, with reasons (pure)
//	rollout.go       Pods of an old template (pure)
//	marks.go         marks for scale-down (pure)
//	snapshot.go      the input of a decision
//	act.go
//	create.go        new Pods, in growing batches
//	podhandler.go
//	gate.go          other packages' reports on a pool, which can hold it back
//	failures.go      creates that fail
//	patch.go
//	pod.go
//	replacements.go  the duration of replacements
//	timeline.go      ages of stages
//	crashes.go       idle Pods that end
//	report.go
//	memory.go        the state between reconciles, bounded by pools, Pods and nodes (I10)
//	backoffs.go      nodes that delay restarted containers
//	notices.go
//	podview.go
//
// A Pod's phases:
//
//	starting ── new container is ready, hooks done ──▶ running
//	starting ── startup timeout, or a hook failed permanently ──▶ failed
//	starting, running ── container ended: 0 ──▶ stopping, Completed; else ──▶ failed
//	stopping ── reset ──▶ idle; cannot be, or takes too long ──▶ replaced
//	failed ──▶ replaced
//
// # Rules
//
//   - I1, I6: every delete names uid and resourceVersion; because by uid alone it would delete a claimed Pod: TestDeleteLosesToAClaim. A
//     scale-down deletes marked idle Pods only; a claim clears the mark: TestScaleDownSparesSandboxes, TestMarkedPodCanBeClaimed,
//     TestClaimsSurviveScaleDown.
//   - The autoscaler's marks stay for its window and half a minute more: TestMarksGoWhenReplicasRise.
//   - I11: the age of a stage is measured on the monotonic clock since this process first saw it; because a stage may end late, but never
//     early: TestTimeline, TestWrongClocksEndNothing.
//   - I13: a Pod returns to idle only through sandbox.ResetDone: TestRecycle, TestResidueIsReplaced.
//   - If a node delays restarted containers for longer than a new Pod takes, its Pods are replaced instead of reset, for an hour. Its idle
//     Pods are replaced a fifth at a time: TestBackoffs, TestNewPodTime.
//   - Idle Pods of an old revision are replaced, unready ones first, rollout-max-unavailable (default a fifth) at a time. Other Pods are
//     replaced after their sandbox: TestRollout, TestTemplateRollsOver.
//   - A Pod loses its finalizer or its identity only after the Recorder has the record; while the disk is full, Pods wait:
//     TestRecordBeforeThePodGoes, TestPodsOutliveTheirPool, TestPodsThatWaitForTheirRecordsAreBounded.
//   - Checks and hooks precede the write that starts the sandbox: TestHooksAreDoneBeforeASandboxRuns, TestAFailedHookFailsTheSandbox.
//   - Manually edited labels are restored first. A Pod without any trace of its sandbox is replaced: TestI6_LabelsOfASandboxAreWrittenBack.
//   - Writes that the cache does not show yet hold back scaling, and all verbs on their Pod: TestNothingIsDoneTwiceOnAnOldCache. A lost
//     race is not an error; because the winner's event follows.
//   - A pool's status is written at most once a second. All pools together write at most ten a second, except for conditions that users
//     wait for; because with a thousand busy pools these writes took as much of the API server as the claims:
//     TestStatusesOfManyPoolsAreSpaced, TestUrgent. No decision depends on them.
//   - status.pendingRequests, which is for users alone, is written after a change by a fifth, or to or from 0, and at most every 3 s:
//     TestPendingRequestsAreWrittenEveryThreeSeconds, TestPendingMoved.
//   - A refusal by a plugin, a ResourceQuota or a LimitRange shows in Scaling and an Event, and is retried with one Pod after 1 s to a
//     minute: TestResourceQuota, TestLimitRange, TestPluginsDecideAboutPods. Any other objection of the API server is an error; after half
//     a minute without new Pods it is a refusal: TestPodsThatCannotBeMade.
//   - Gaters pause a pool or its creates, and add conditions to its status, which has one writer: TestGate.
//   - Not built: fields newer than this module's Kubernetes libraries do not reach Pods; because the template is typed.
package pool
