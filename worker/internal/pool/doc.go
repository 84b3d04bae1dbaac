// SPDX-License-Identifier: Apache-2.0

// Package pool reconciles the Pods of SandboxPools: as many as replicas says, each from its creation to its terminal record.
//
// In: a pool, its Pods, how long each has been in its stage, and what was written and not seen yet. Out: writes to Pods, the
// pool's status, Events, and terminal records. Package sandbox defines how a sandbox is written on its Pod; package claim handles
// claims, package sandboxes releases.
//
//	gather.go        the snapshot, from the cache
//	reconciler.go    options, watches, gather, decide, act, report
//	metrics.go       metrics
//	decide.go        a list of verbs on Pods with a reason each (pure; texts in testdata)
//	rollout.go       Pods of an old template (pure)
//	marks.go         marks for scale-down (pure)
//	snapshot.go      the input of one decision; verbs and reasons
//	act.go           carries the decision out
//	create.go        new Pods, in growing batches
//	podhandler.go    Pod events
//	gate.go          what other packages report about a pool
//	failures.go      since when no Pod can be created
//	patch.go         rare patches of Pods
//	pod.go           a new Pod, and the revision of its template
//	replacements.go  how long a replacement takes
//	timeline.go      how long each Pod has been in its stage
//	crashes.go       the back-off of idle Pods that end
//	report.go        writes the status; package status computes it
//	memory.go        what is kept between decisions, bounded by pools, Pods and nodes (I10); package expectations has the writes not seen yet
//	backoffs.go      which nodes hold containers back
//	notices.go       Events
//	podview.go       facts about one Pod
//
// # A Pod's phases
//
//	starting ── new container runs and is ready, hooks done ──▶ running
//	starting ── startup timeout, or a hook failed permanently ──▶ failed
//	starting, running ── container ended: 0 ──▶ stopping, Completed; else ──▶ failed, Failed
//	stopping ── reset is done ──▶ idle; cannot be, or takes too long ──▶ replaced
//	failed ──▶ replaced
//	any, labelled otherwise ──▶ as it was, with an Event
//
// # Rules
//
//   - I1, I6: every delete names uid and resourceVersion; because with the uid alone a Pod that was claimed a moment ago is
//     deleted with its sandbox: TestDeleteLosesToAClaim. A scale-down deletes only idle Pods. It marks them first, and a claim
//     clears the mark in its own write: TestScaleDownSparesSandboxes, TestMarkedPodCanBeClaimed, TestClaimsSurviveScaleDown.
//   - In an autoscaled pool the autoscaler marks first, and lowers replicas after the window. Marks that are not too many are
//     left for the window and half a minute more (marks.go): TestMarksGoWhenReplicasRise.
//   - I11: windows and timeouts are measured on the monotonic clock since this process first saw the stage. After a restart a
//     stage is timed again: it ends late by its own length at most, never early. TestTimeline, TestWrongClocksEndNothing.
//   - I13: a Pod returns to idle only through sandbox.ResetDone: TestRecycle, TestResidueIsReplaced.
//   - Pods on a node that holds restarted containers back for longer than a new Pod of the pool takes (the median) are replaced
//     instead of reset, for an hour; idle ones that were reset there are replaced a fifth of the pool at a time. This is learned
//     from Pods; because the API does not show a kubelet's configuration. TestBackoffs, TestNewPodTime.
//   - Idle Pods of an old revision are replaced, as many at a time as the annotation rollout-max-unavailable allows to be
//     missing, a fifth of replicas without it; those that are not ready first. A Pod with a sandbox is replaced when the sandbox
//     has ended: TestRollout, TestTemplateRollsOver.
//   - Pods are created with a finalizer, which is removed only after the Recorder has accepted the sandbox's record, however the
//     Pod dies; while the disk is full Pods wait. The write that makes a Pod idle comes after the record, too:
//     TestRecordBeforeThePodGoes, TestPodsOutliveTheirPool, TestPodsThatWaitForTheirRecordsAreBounded.
//   - Readiness checks that no kubelet makes, and post-start hooks, run between the container's readiness and the write that
//     starts the sandbox (package hooks): TestHooksAreDoneBeforeASandboxRuns, TestAFailedHookFailsTheSandbox.
//   - A Pod whose labels were edited by hand gets them back before anything else is decided about it. A Pod that lost every trace
//     of its sandbox is replaced: TestI6_LabelsOfASandboxAreWrittenBack.
//   - Creates and deletes that the cache does not show yet hold scaling back, and a Pod's latest write holds back all verbs on
//     it: TestNothingIsDoneTwiceOnAnOldCache. A lost race is no error; because the winner's event causes the next decision.
//   - status.pendingRequests is for users. It is written when it has changed by a fifth, or to or from 0, every 3 s at most. No
//     decision reads it: TestPendingRequestsAreWrittenEveryThreeSeconds, TestPendingMoved.
//   - A refusal by a plugin, a ResourceQuota or a LimitRange is no error: the pool waits, 1 s at first and a minute at most,
//     reports the reason in Scaling and in one Event, and retries with a single Pod: TestResourceQuota, TestLimitRange,
//     TestPluginsDecideAboutPods. Any other objection to Pods, by a policy or a webhook, is an error first, and a refusal once no
//     Pod could be created for half a minute: TestPodsThatCannotBeMade.
//   - Gaters may report that another controller keeps the pool, which is then left alone whole; that its template has not been
//     copied yet, so that no Pods are created; and conditions for its status, which has one writer: TestGate.
//
// # Not built
//
// Pods are created from the typed template, so fields newer than this module's Kubernetes libraries do not reach them.
package pool
