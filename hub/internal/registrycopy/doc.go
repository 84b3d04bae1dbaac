// SPDX-License-Identifier: Apache-2.0

// Package registrycopy keeps, apart from the hub's volume, which ledger there is and which clusters are registered or forgotten.
//
// In go the registry's records, and a Place for one small document: a file beside the CA, or a Secret of the hub's own cluster.
// Out comes, for a hub whose volume was lost, a registry that knows whom to wait for.
//
// Without it a hub with no files is new: it serves claim keys at once, also those that clusters hold which have yet to attach,
// and lets in again who was forgotten. With it, such a hub is one that has lost its ledger, and package recovery does the rest
// (I2): TestI2AHubThatLostItsVolumeWaitsForItsClusters of package main. A hub is new if the document is not there either.
//
//   - The document is written before a name is bound, taken or given back, and what it cannot be written for does not happen:
//     so it is never behind the registry. This is rare. Incarnations, which change with every leader, are not in it; workers
//     remember their own.
//   - It is read only if the registry is missing, or is a backup's: else the registry is right, and the document may be an old
//     copy that came with the CA. If it cannot be read then, the hub does not start: nobody knows whether it is new.
//   - Which ledger it is follows within 30 s; a hub that reads an older epoch learns the later ones from Pods.
package registrycopy
