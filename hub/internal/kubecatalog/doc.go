// SPDX-License-Identifier: Apache-2.0

// Package kubecatalog takes the catalogue's SandboxEnvs and SandboxTemplates from the hub's own cluster.
//
// In go objects of the hub's cluster; out go catalog.Take and catalog.Drop, and in the status of each object what became of it: the
// conditions Catalogued, Reconciling and Stalled with observedGeneration, by which Argo CD and Flux show health (kstatus).
//
//	source.go     informers, the queue, who leads
//	reconcile.go  one object: taken, told of, let go
//	decide.go     which objects are the catalogue's; their conditions (pure)
//
// # The hub's cluster may have a worker as well
//
// The object that a user writes there is both what the catalogue takes and what that worker runs. So the catalogue gives that cluster
// nothing of it: two writers of one spec would fight (I3). The cluster has a change as soon as it is written, which is why a rollout has
// it in its first stage, and a rollback leaves it as it is, and says so. The hub knows its cluster by the uid of kube-system, and delivers
// nothing to any cluster before it has read that. The hub writes no field of a spec, and of a status what is named above: Ready and the
// segments are the worker's.
//
// # Rules
//
//   - Only the leader among the hub's replicas reads and writes objects. Two leaders for a moment do no harm: the store takes one of two
//     revisions, and statuses are applied: TestOneLeads.
//   - Absence is not deletion (I5): a finalizer makes a deletion visible, even one while the hub is away. What is merely gone stays in the
//     catalogue, until `atollctl delete` or until it is written again: TestI5AbsenceIsNotDeletion.
//   - An object that went back to an earlier generation (a restored etcd, I4) is not taken until it changes from there:
//     TestI4AnObjectThatWentBack.
//   - What a catalogue has delivered into this cluster is no source, also not of another hub: TestWhatIsDeliveredIsNoSource.
//   - What is refused is told in Catalogued in an API server's words, and the clusters keep what they have: TestTaken.
package kubecatalog
