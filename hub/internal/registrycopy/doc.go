// SPDX-License-Identifier: Apache-2.0

// Package registrycopy keeps a copy, apart from the hub's volume, of the ledger's name and of the registered and forgotten
// clusters.
//
// In go the registry's records, and a Place for one small document: a file beside the CA, or a Secret in the hub's own cluster.
// Out comes, for a hub whose volume was lost, a registry that has the clusters to wait for.
//
// Without the copy a hub without files is new: it serves claim keys at once, even keys of clusters that have yet to attach, and
// admits forgotten clusters again. With the copy, such a hub has lost its ledger, and package recovery restores it (I2):
// TestI2AHubThatLostItsVolumeWaitsForItsClusters of package main. A hub is also new if the document does not exist.
//
//   - The document is written before a name is bound, taken or returned, and a failed write fails that change; because the
//     document must never be behind the registry. These writes are rare. Incarnations, which change with every leader, are not in
//     it; workers remember their own.
//   - It is read only if the registry is missing or comes from a backup; because otherwise the registry is right, and the
//     document may be an old copy that came with the CA. If it cannot be read then, the hub does not start; because it may or may
//     not be new.
//   - The ledger's name follows within 30 s; a hub that reads an older epoch learns the later ones from Pods.
package registrycopy
