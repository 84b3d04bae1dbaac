// SPDX-License-Identifier: Apache-2.0

// Package foreigncontroller keeps the worker's hands off what another controller keeps: the system that the API comes from, or another
// installation of Atoll in the same cluster.
//
// In go pools and Envs as their reconcilers read them, and the cluster's leases; out comes whether an object is held by
// somebody else (Paused), which env, pool, standalone, adoption and agent ask before they do anything about it. What gives the other
// away is package pkg/foreigncontroller's.
//
// # What is paused
//
//	one object     its status was written by another controller after us, and less than 2 min ago
//	every object   a lease that the operator has named (--rival-leases) is being renewed
//
// No other lease counts (I14): who edits a namespace can make one of any name. `atollctl doctor` tells of those that look like
// another controller's. A named lease lasts a minute at most after it was last renewed, whatever it says.
//
// Of a paused object nothing is written, no condition either: a status is where the two would fight. An event on the object, a
// metric and `atollctl doctor` tell of it. Its pool gets no claims, from the hub or from here. Sandboxes that run there go
// on, and can be reached and released.
//
// # How it ends
//
// By itself: when nobody has written the status for 2 min, or the lease was given up or not renewed for as long as it
// lasts. Should the other one still be there, it shows after our next write, and the object is paused again: of two that will
// not give way one writes once in 2 min, and nothing swings between them.
//
// Times are measured on the monotonic clock from when this process saw what it saw (I11): managed fields and leases only
// tell one write from the next. So a worker that comes to a pool which another controller wrote last watches it for 2 min
// first, however long that is ago.
//
// # Bounds
//
// Only contested objects are remembered, and those that nobody has asked about for an hour are forgotten (I10). Leases of
// nodes are not read.
//
// # What is not noticed
//
// A controller that writes Pods alone: Pods are cached without managed fields. One whose lease was not named, until it writes a
// status. Another installation of Atoll whose lease was not named: its writes look like ours. What the other did between our look and our write: writes test what
// they were decided from, so the later one loses.
package foreigncontroller
