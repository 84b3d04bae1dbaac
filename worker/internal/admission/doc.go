// SPDX-License-Identifier: Apache-2.0

// Package admission asks plugins before a pool is created, resized or deleted, and before a Pod is created.
//
// In: a Change or a PodRequest. Out: a Verdict: how much of it is admitted, and for the rest the reason and when to ask again. A
// plugin implements those of the four interfaces that it needs. Chain asks the plugins in order and admits what all of them
// admit.
//
// # Rules
//
//   - A Verdict is a decision; an error is none. Nothing is done without a decision, and an error never counts as a refusal;
//     because a refusal makes a pool saturated, while an error is retried: TestNoAnswerIsNoRefusal.
//   - Plugins are asked once, where a change begins: PreCreatePool when a member is rendered (its Verdict is frozen in the
//     member's snapshot and never asked for again), PreUpdatePool when replicas are to grow, PreCreatePod before each Pod.
//   - Labels, annotations and spec that a plugin adds to a pool in PreCreatePool are frozen in the snapshot as well:
//     TestPluginsEditPools.
package admission
