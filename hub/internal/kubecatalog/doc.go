// SPDX-License-Identifier: Apache-2.0

// Package kubecatalog takes the catalogue's SandboxEnvs and SandboxTemplates from the hub's own cluster.
//
// In: objects of the hub's cluster. Out: catalog.Take and catalog.Drop, and the result in the status of each object: the conditions
// Catalogued, Reconciling and Stalled with observedGeneration, from which Argo CD and Flux derive health (kstatus).
//
//	source.go     informers, the queue, who leads
//	reconcile.go  one object: taken, told of, let go
//	decide.go     which objects are the catalogue's; their conditions (pure)
//
// # The hub's cluster may have a worker as well
//
// The object that a user writes there is both the catalogue's source and the object that the worker runs. So the catalogue delivers nothing
// of it to that cluster: two writers of one spec would fight (I3). The cluster has a change as soon as it is written. Therefore it must be
// in the first stage of a rollout, and a rollback leaves its object unchanged and says so. The hub recognizes its cluster by the uid of
// kube-system, and delivers nothing to any cluster before it has read that uid. The hub writes no field of a spec. Of a status it writes
// only the fields above: Ready and the segments belong to the worker.
//
// # Rules
//
//   - Only the leader among the hub's replicas reads and writes objects. Two leaders at a time do no harm: the store accepts one of two
//     revisions, and statuses are applied: TestOneLeads.
//   - Absence is not deletion (I5): a finalizer makes a deletion visible, even if the hub is down meanwhile. An object that disappears
//     without a visible deletion stays in the catalogue, until `atollctl delete` or until it is written again: TestI5AbsenceIsNotDeletion.
//   - An object that went back to an earlier generation (a restored etcd, I4) is not taken until it changes from there:
//     TestI4AnObjectThatWentBack.
//   - Objects that a catalogue, also that of another hub, has delivered into this cluster are no sources: TestWhatIsDeliveredIsNoSource.
//   - For a refused object, Catalogued has the message of an API server, and the clusters keep what they have: TestTaken.
package kubecatalog
