// SPDX-License-Identifier: Apache-2.0

// Package adoption creates an Env for a SandboxPool that has none, so that it can be routed to and scaled. It is off by default
// (--adopt-pools).
//
// In: SandboxPools and SandboxEnvs. Out: a SandboxEnv with the pool's name and namespace, and an owner reference to it on the pool.
//
// # Which pools (TestDecide)
//
//	off    none
//	label  those with the label agentbox.navix.sh/managed-by=sandbox-api-server
//	all    every pool
//
// A pool is skipped if
//
//   - an Env owns it, in any version of the API, controlling or not;
//   - it has the label agentbox.navix.sh/env; because it may be left behind on purpose (--cascade=orphan, I4);
//   - it is being deleted;
//   - another Env of its name exists, which an Event reports.
//
// # What the Env contains (TestEnvFor)
//
//   - templateRef, which is required: the template that the pool records, else the one that it names, else the pool's name. No version is
//     pinned.
//   - One member, in this cluster's segment, with a snapshot of the live pool: spec, labels and annotations, except those of tools.
//   - config.inlineResources: those of the first container.
//   - config.scalingGroup: "", out of autoscaling.
//   - agentbox.navix.sh/adopted-pool: the pool's uid marks this package's Envs.
//
// # Rules
//
// TestAdoption of package runner holds them on an API server.
//
//   - I6: the pool's spec is not written, and its Pods stay: TestAdoption.
//   - The owner reference is not controlling; because a former controller looks for a controlling one: TestAdoption.
//   - The Env is created first; because after a crash the annotation identifies it: TestDecide. The reference's patch tests the pool's uid
//     and resourceVersion: TestOwnPatchesWhatWasRead. Adoption waits for an Env that is being deleted: TestDecide.
//   - The garbage collector deletes the pool with its Env, after its sandboxes; `kubectl delete --cascade=orphan` leaves it: TestAdoption.
package adoption
