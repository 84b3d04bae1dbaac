// SPDX-License-Identifier: Apache-2.0

// Package upgrade holds Atoll to what its users are promised about upgrades: under a steady load of claims, hub and workers
// go to another version and back, in both orders, and with worker and hub one build apart in between; no answered sandbox
// is lost (I2, I6), no Pod is answered twice (I1), no sandbox stays that nobody was told of, and whoever calls again after
// UNAVAILABLE succeeds.
//
// On planes the programs of this machine are exchanged; with the build tag kind, `helm upgrade` does it in kind clusters of
// the suite's own (clusters/*.yaml), with two replicas of each worker. The version to come from is the revision given
// with -args -from, by default the newest earlier tag, or without tags the commit before; charts are taken from it as
// well. A checkout without history upgrades from its own sources under another name, and says so.
//
// The suite ends with a table: how long each step left callers without an answer, and what calling again cost them.
package upgrade
