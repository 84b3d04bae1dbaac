// SPDX-License-Identifier: Apache-2.0

// Package catalog keeps the SandboxEnvs and SandboxTemplates that platform teams manage at the hub, and gives each cluster its part.
//
// In go manifests and the calls of the services Envs and Templates; out go dispatches to workers, and what became of them.
//
//	record.go   what is stored
//	catalog.go  the Service: what it knows of the store, and how it learns of changes
//	api.go      manifests put, shown and removed; revisions
//	templates.go the service Templates, and who sees a template
//	decide.go   what a cluster is to have, and what has to be sent for that (pure)
//	deliver.go  one goroutine a cluster that sends it
//	plan.go     dry runs in the clusters; Envs taken over from them
//	rollout.go  a change that goes in stages (decision pure)
//
// # In the store
//
//	catalog/id                 the catalogue's id, made once
//	catalog/o/KIND/NS/NAME     an Env or a template: its manifest, revision and rollout; a tombstone once it is removed
//	catalog/h/KIND/NS/NAME     its last revisions
//	catalog/c/CLUSTER          what became of each manifest in a cluster
//
// Every replica knows all of it, and follows the store. The replica at which a cluster is attached gives it its part, and writes what
// became of that. After a restart the cluster is asked what it has, and gets again what no entry says that it took.
//
// # Rules
//
//   - A manifest is checked as an API server does it before it is stored: TestPutRefuses.
//   - A cluster gets the latest of each manifest, not the history: TestDeliver.
//   - A call about one manifest sees what its caller has just written at another replica; a list shows what is known:
//     TestACallSeesWhatAnotherReplicaWrote.
//   - Nothing is removed because the catalogue does not know it (I5). What is removed has a tombstone, or a later revision without a
//     segment of the cluster: TestI5AStoreThatWasSetBackRemovesNothing.
//   - A cluster that has a later revision keeps it (I4); the next put is later than both: the same test.
//   - A cluster has a revision once it was seen to take it; because a store that was set back uses numbers again:
//     TestI4ARevisionThatIsUsedAgainIsDelivered.
//   - What a cluster has of another catalogue counts as absent; because its worker then refuses what is sent, which callers see, and two
//     hubs do not fight: TestAnotherCataloguesObjectsAreRefused.
//   - A cluster that a rollout holds back keeps what it has, also where that is a revision between; because only what is later than the
//     record itself tells of a store that was set back: TestI4AChangeDuringARollout.
//   - A rollout fails by what clusters say of its own revision, of no earlier one; because what they refused before is what it may cure:
//     TestRolloutIsJudgedByItsOwnRevision.
//   - An undo gives what was there before the rollout, and a second one has to name a revision; because every cluster would get at once
//     what had failed: TestUndo.
//   - A caller sees nothing of an Env's parts in clusters that it may not see for this Env: rollouts lack their clusters, revisions the
//     manifests that name them, and plans and imports do not ask them. A change of such a part is refused, also of one that a
//     rollout holds back; because the change would end the rollout: TestOtherClustersAreNotShown.
//   - One cluster's delivery waits for no other one (I7).
//   - What became of the catalogue in a forgotten cluster is removed within an hour; because tombstones wait for it, and no more Envs are
//     taken once there are too many: TestI10AForgottenClusterKeepsNoTombstones.
//   - Manifests, objects, revisions and messages are bounded (I10, I14).
package catalog
