// SPDX-License-Identifier: Apache-2.0

// Package patch writes a reconciler's changes to a SandboxPool, and nothing else. It also sets conditions (SetCondition); their time
// changes only with the status.
//
// In: a pool as read and as changed. Out: at most one API call for metadata and spec, and one for status:
//
//	helper := patch.NewPatchHelper(c, pool)
//	defer func() { err = errors.Join(err, helper.Patch(ctx, pool)) }()
//
// Rules:
//
//   - Only changed fields are sent; because the autoscaler writes status.autoscaling, the pool reconciler the counts, and neither may undo
//     the other. The reference updates all of status.
//   - A patch of metadata and spec names the pool's uid, and fails as invalid for a new pool of that name.
//   - A patch of status cannot; because the API server ignores metadata in it. A new pool may have its predecessor's counts until its first
//     reconcile.
//   - It takes a *SandboxPool, so no SandboxEnv; because typed bodies of Envs lose values (package v1alpha1).
//   - It is coded by hand; because a diff of JSON costs 30 times as much.
package patch
