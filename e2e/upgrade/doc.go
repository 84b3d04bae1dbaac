// SPDX-License-Identifier: Apache-2.0

// Package upgrade tests upgrades: under steady claims, hub and workers change version and back, in both orders. No acknowledged sandbox is
// lost (I2, I6), no Pod returned twice (I1), no sandbox stays that no caller was given, and a retry after UNAVAILABLE succeeds.
//
// With -hubs 3 the replicas of a hub are replaced one at a time, and after each a claim that one replica took is repeated and released at
// every other one, of whichever version.
//
// On planes it replaces programs; with the build tag kind it runs `helm upgrade` (clusters/*.yaml), with two replicas of each worker. The
// old version, charts included, is -from: by default the newest earlier tag, else the commit before.
//
// It ends with a table of each step's gap and retries.
package upgrade
