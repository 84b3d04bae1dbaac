// SPDX-License-Identifier: Apache-2.0

// Package patch writes a reconciler's changes to a SandboxPool, and nothing else.
//
// In go a pool as read, and the same pool as the reconciler changed it. Out come at most two API calls, one for metadata and
// spec, one for status; none when nothing changed:
//
//	helper := patch.NewPatchHelper(c, pool)
//	defer func() { err = errors.Join(err, helper.Patch(ctx, pool)) }()
//	// … change metadata, spec, status …
//
// Its rules:
//
//   - Only changed fields are sent; because the autoscaler writes status.autoscaling and the pool reconciler the counts, and
//     neither may undo the other.
//   - A patch of metadata and spec names the pool's uid; because a pool of the same name may have been created since. Such a
//     patch fails as invalid.
//   - A patch of status cannot name the uid; because the API server ignores metadata in it. A new pool may have its
//     predecessor's counts until its first reconcile.
//
// # Pools only
//
// The helper takes a *SandboxPool, not an interface, so it cannot patch a SandboxEnv. Env fields have defaults for values that
// a Go struct omits when empty: a typed body turns `scalingGroup: ""` (no autoscaling) into "default" and
// `idleThresholdSeconds: 0` (off) into 30. worker/internal/env writes Envs with raw JSON.
//
// # Differences from the reference
//
// The reference updates status as a whole, which reverts fields that another writer has changed since. Here status is a merge
// patch of the changed fields. The patch is coded by hand; because a diff of two JSON documents costs 30 times as much, and a
// pool's status changes with every Pod.
//
// The package also sets conditions (SetCondition), with the typed reasons of api/v1alpha1. kstatus reads status and reason. The
// time changes only with the status.
package patch
