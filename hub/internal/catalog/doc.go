// SPDX-License-Identifier: Apache-2.0

// Package catalog keeps the SandboxEnvs and SandboxTemplates that platform teams manage at the hub, and gives each cluster its part.
//
// In: manifests, and calls of the services Envs and Templates. Out: dispatches to workers, and the status of each manifest in each cluster.
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
//	catalog/c/CLUSTER          the status of each manifest in a cluster
//
// Every replica has all of it in memory, and follows the store. The replica to which a cluster is attached delivers the cluster's part and
// writes the status. After a restart it asks the cluster which revisions it has, and sends again those that no entry shows as taken. A
// record that is written while the store is read in full stays, although the read may not have seen it: TestAWriteDuringAReadHolds.
//
// # Rules
//
//   - Before a manifest is stored, it is checked as an API server checks it: TestPutRefuses.
//   - A cluster gets the latest revision of each manifest, not the history: TestDeliver.
//   - A call about one manifest sees a write that its caller has just made at another replica. A list shows what this replica knows:
//     TestACallSeesWhatAnotherReplicaWrote.
//   - A call about a template checks and uses one read of its record; because another replica may hide the template meanwhile:
//     TestATemplateThatIsHiddenMeanwhileIsNotShown, TestATemplateThatIsHiddenMeanwhileIsNotReplaced. PutTemplate shows the record that it
//     wrote: TestATemplateThatIsHiddenMeanwhileIsNotShown.
//   - The revisions of a template omit manifests that are hidden from the caller; because a template may have been hidden before:
//     TestATemplateThatIsHiddenMeanwhileIsNotShown. A removed template is NOT_FOUND for a caller who saw none of them: TestVisibility.
//   - No object is removed from a cluster because the catalogue does not know it (I5). A removal needs a tombstone, or a later revision
//     without a segment of the cluster: TestI5AStoreThatWasSetBackRemovesNothing.
//   - A cluster that has a later revision keeps it (I4). The revision of the next put or undo is higher than both: the same
//     test, TestI4AnUndoInAStoreThatWasSetBackIsDelivered.
//   - A revision counts as delivered only once the cluster was seen to take it; because a store that was set back uses revision numbers
//     again: TestI4ARevisionThatIsUsedAgainIsDelivered.
//   - Objects of another catalogue count as absent; because the cluster's worker then refuses what is sent, callers see the refusal, and
//     two hubs do not fight: TestAnotherCataloguesObjectsAreRefused.
//   - A cluster that a rollout holds back keeps what it has, even a revision in between; because only a revision that is later than the
//     record itself shows that the store was set back: TestI4AChangeDuringARollout.
//   - A rollout fails only by what clusters report of its own revision; because it may fix an earlier revision that they refused:
//     TestRolloutIsJudgedByItsOwnRevision.
//   - An undo restores the manifest from before the rollout. A second undo must name a revision; because otherwise every cluster would at
//     once get the revision that failed: TestUndo.
//   - A caller sees no parts of an Env in clusters that it may not see for this Env: rollouts omit these clusters, revisions omit manifests
//     that name them, and plans and imports do not ask them. A change of such a part is refused, even of one that a rollout holds back;
//     because the change would end the rollout: TestOtherClustersAreNotShown.
//   - Delivery to one cluster never waits for another cluster (I7).
//   - The status of a forgotten cluster is removed within an hour; because tombstones wait for it, and the catalogue accepts no more Envs
//     once there are too many tombstones: TestI10AForgottenClusterKeepsNoTombstones.
//   - Manifests, objects, revisions and messages are bounded (I10, I14).
package catalog
