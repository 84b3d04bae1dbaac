// SPDX-License-Identifier: Apache-2.0

// Package upgrade tests upgrades: under a steady load of claims, hub and workers change to another version and back, in both
// orders, with worker and hub one build apart in between. It checks that no acknowledged sandbox is lost (I2, I6), no Pod is
// returned twice (I1), no sandbox stays that no caller was given, and a retry after UNAVAILABLE succeeds.
//
// On planes the suite replaces the programs of this machine. With the build tag kind, `helm upgrade` does it in kind clusters
// of the suite's own (clusters/*.yaml), with two replicas of each worker. The old version is the revision given with -args
// -from: by default the newest earlier tag, or without tags the commit before. Its charts are used too. A checkout without
// history upgrades from its own sources under another name, and says so.
//
// The suite ends with a table: how long each step left callers without a response, and the cost of retries.
package upgrade
