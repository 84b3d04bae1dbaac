// SPDX-License-Identifier: Apache-2.0

// Package patch writes a reconciler's changes to a SandboxPool, and nothing else. It also sets conditions (SetCondition); their time
// changes only with the status: TestSetCondition.
//
// In: a pool as read and as changed. Out: at most one API call for metadata and spec, and one for status:
//
//	helper := patch.NewPatchHelper(c, pool)
//	defer func() { err = errors.Join(err, helper.Patch(ctx, pool)) }()
//
// Rules:
//
//   - Only changed fields are sent; because the autoscaler writes status.autoscaling and the pool reconciler writes the counts, and neither
//     may revert the other. The reference implementation updates all of status: TestPatch, TestPatchLeavesOtherWritersAlone,
//     TestStatusChangesKnowsEveryField, TestStatusChangesRemovesInsideObjects.
//   - A patch of metadata and spec contains the pool's uid, and fails as invalid if a new pool has the name; LostRace recognizes that:
//     TestPatch, TestLostRace; on an API server TestPatchHelperOnAnAPIServer and TestLostRacesAndFaultyWrites of worker/internal/env.
//   - A patch that replaces a list of metadata also contains the resourceVersion; because another writer may have changed the list:
//     TestPatch.
//   - If a write fails, the pool keeps the wanted status: TestPatchKeepsTheWantedStatusWhenAWriteFails.
//   - A patch of status cannot contain it; because the API server ignores metadata there. A new pool may have its predecessor's counts
//     until its first reconcile.
//   - It accepts only a *SandboxPool, not a SandboxEnv; because typed bodies of Envs lose values (package v1alpha1).
//   - It is handwritten; because a JSON diff costs 30 times as much: BenchmarkPatch.
package patch
