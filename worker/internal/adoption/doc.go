// SPDX-License-Identifier: Apache-2.0

// Package adoption makes an Env for a SandboxPool that has none, so that a pool of the system that the API comes from, or
// one made by hand, can be routed to, sized and shown like any other. It does nothing unless it is asked to (--adopt-pools).
//
// What goes in: SandboxPools and SandboxEnvs, through the manager's cache. What comes out: a SandboxEnv of the pool's name
// and namespace, and an owner reference to it on the pool.
//
// # Which pools
//
//	off    none
//	label  those with the label agentbox.navix.sh/managed-by=sandbox-api-server: the former system made them
//	all    every pool
//
// and of these only pools that no Env owns, in any version of the API, controlling or not; that no label
// agentbox.navix.sh/env says are, or were, a member of one; and that are not being deleted. So a pool that was left behind
// on purpose when its Env was deleted (--cascade=orphan) is not taken back (I4). An Env of the pool's name that somebody
// else made is that somebody's: the pool stays as it is, and an event says so.
//
// # What the Env says
//
// templateRef is the template that the pool records, else the one that it names, else the pool's own name: the field is
// required, and TemplateConsistent tells if there is no such template. No version is pinned. The one member, in this
// cluster's segment, has the pool's name and a snapshot of the pool as it is: spec as a document, labels and annotations
// but for those of tools. config.inlineResources are those of the pool's first container; config.scalingGroup is "", out of
// autoscaling, so that nobody sizes the pool who did not before. The annotation agentbox.navix.sh/adopted-pool is the
// pool's uid, by which an Env made here is told from any other.
//
// The live pool is what the snapshot says, so nothing is written to its spec, and its Pods, running or idle, stay
// (I6). The reference on the pool is not a controlling one: HasEnvOwner does not ask, and a former controller that looks
// for its own finds it free.
//
// # In steps
//
// Create the Env; then the reference, by a patch that tests the pool's uid and resourceVersion. Whatever is in between, a
// crash, a lost answer, another leader, the next look finds the Env by its annotation and goes on. An Env that is being
// deleted is waited for.
//
// # The end of such an Env
//
// An owner reference counts for the garbage collector whether it is controlling or not: with the Env goes the pool, whose
// finalizer lets running sandboxes end on their own terms. `kubectl delete --cascade=orphan` takes the Env away and leaves
// the pool, which then goes on without one.
package adoption
