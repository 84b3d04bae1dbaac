// SPDX-License-Identifier: Apache-2.0

// Package patch writes what a reconciler changed on a SandboxPool, and nothing else.
//
// What goes in: a pool as it was read, and the same pool after a reconciler has worked on it. What comes out: at most two
// API calls, one for metadata and spec, one for status, and none at all when nothing changed:
//
//	helper := patch.NewPatchHelper(c, pool)
//	defer func() { err = errors.Join(err, helper.Patch(ctx, pool)) }()
//	// … change metadata, spec, status …
//
// Only fields that changed are sent, so writers of other fields (the autoscaler's status.autoscaling beside the pool
// reconciler's counts) do not undo each other. A patch of metadata and spec names the pool's uid, and is refused as
// invalid by a pool of the same name that was created in the meantime. A patch of status cannot be bound like that, the
// API server ignores metadata in it; such a pool has the counts of its predecessor until it is looked at.
//
// # Pools only
//
// The helper takes a *SandboxPool and no interface, so that a SandboxEnv cannot be handed to it. Env fields have defaults
// for what a Go struct leaves out when it is empty: a typed body turns `scalingGroup: ""` (no autoscaling) into "default"
// and `idleThresholdSeconds: 0` (off) into 30. Envs are written with raw JSON, by worker/internal/env.
//
// # Where it departs from the reference
//
// The reference updates status as a whole, which brings back fields that another writer has changed since. Here status
// is a merge patch of the changed fields. It is written by hand, because it is the hot one: a diff of two JSON documents
// costs 30 times as much, and a pool's status changes with every Pod.
//
// The package also sets conditions (SetCondition), with the typed reasons of api/v1alpha1: status and reason are what
// kstatus reads, and the time changes only with the status.
package patch
