// SPDX-License-Identifier: Apache-2.0

// Package segments builds this cluster's segments, which package agent reports for each Env.
//
// In: Envs and pools of the informers' cache, counts of the inventory and of claims, outlooks of the autoscaler. Out: a segment.Segment for
// each Env, and which Envs may have changed since they were last taken.
//
//	source.go     Source: changed Envs; gathers the inputs of a segment
//	decide.go     Envs into segments (pure)
//	standalone.go pools without an Env
//
// # Rules
//
//   - A segment describes an Env as it is when the segment is built: TestASegmentIsOfTheMomentAtWhichItIsBuilt. Marks are a set of Envs;
//     because a queue of events has no bound (I10): TestI10MarksAreASetOfEnvs.
//   - An Env has no segment only if the synced cache lacks it (I5): TestI5AnEnvThatCannotBeReadIsNotGone. An Env without a local member has
//     one; because the hub sends foreign segments for it: TestDescribe.
//   - What a namespace's editors write fits into a segment: TestI14WhatANamespaceEditorWritesFitsIntoASegment.
//   - A member shows what the autoscaler expects: TestDescribeMemberTellsTheOutlook. Without an autoscaler no pool can grow:
//     TestWithoutAnAutoscalerNoPoolGrows.
//   - A pool without an Env is the one member of an Env of its name, unless that Env exists: TestAWorker of package runner,
//     TestStandInSaysWhatAPoolWaitsFor. Another controller's pool is Inconsistent: TestDescribe.
package segments
