// SPDX-License-Identifier: Apache-2.0

// Package adoption creates an Env for a SandboxPool that has none, so that a pool of the former system, or one created by hand,
// can be routed to, scaled and shown like any other. It is off by default (--adopt-pools).
//
// In: SandboxPools and SandboxEnvs, from the manager's cache. Out: a SandboxEnv with the pool's name and namespace, and an owner
// reference to it on the pool.
//
// # Which pools
//
//	off    none
//	label  those with the label agentbox.navix.sh/managed-by=sandbox-api-server: the former system created them
//	all    every pool
//
// Of these, a pool is skipped if
//
//   - an Env owns it, in any version of the API, controlling or not;
//   - it has the label agentbox.navix.sh/env: it is, or was, a member of an Env. A pool that was left behind on purpose when its
//     Env was deleted (--cascade=orphan) is therefore not adopted (I4);
//   - it is being deleted;
//   - an Env of its name exists that this package did not create. The pool stays as it is, and an Event reports it.
//
// TestDecide holds them.
//
// # What the Env contains (TestEnvFor)
//
//   - templateRef: the template that the pool records, else the one that it names, else the pool's own name; because the field is
//     required. TemplateConsistent reports a template that does not exist. No version is pinned.
//   - One member, in this cluster's segment, with the pool's name and a snapshot of the live pool: the spec as a document, labels
//     and annotations except those of tools.
//   - config.inlineResources: those of the pool's first container.
//   - config.scalingGroup: "", which is out of autoscaling; because nothing scaled the pool before.
//   - The annotation agentbox.navix.sh/adopted-pool: the pool's uid. It distinguishes an Env of this package from any other.
//
// # Rules
//
//   - I6: the pool's spec is not written; because the snapshot is the live pool. Its Pods, running or idle, stay.
//   - The owner reference is not a controlling one. HasEnvOwner accepts that, and a former controller that looks for a
//     controlling owner finds none.
//   - The Env is created first, then the reference is written with a patch that tests the pool's uid and resourceVersion. After a
//     crash, a lost response or a change of leader the next reconcile finds the Env by its annotation and continues. It waits for
//     an Env that is being deleted.
//   - The garbage collector deletes the pool with its Env; because it counts any owner reference. The pool's finalizer lets
//     running sandboxes end on their own terms. `kubectl delete --cascade=orphan` deletes the Env and leaves the pool without
//     one.
package adoption
