// SPDX-License-Identifier: Apache-2.0

// Package foreigncontroller pauses reconciliation of objects that another controller keeps: the system that the API comes from,
// or another installation of Atoll in the same cluster.
//
// In: pools and Envs as their reconcilers read them, and the cluster's leases. Out: whether an object is paused (Paused).
// Packages env, pool, standalone, adoption and agent ask before they act on it. Package pkg/foreigncontroller detects the other
// controller.
//
// # What is paused
//
//	one object     another controller wrote its status after us, less than 2 min ago
//	every object   a lease that the operator named (--rival-leases) is being renewed
//
// # Rules
//
//   - I14: no other lease counts; because any user who may edit a namespace can create one of any name. `atollctl doctor` reports
//     leases that look like another controller's. A named lease counts for a minute at most after it was last renewed, whatever
//     it says: TestLeaseOfAnother.
//   - A paused object is not written, conditions included; because the two controllers would fight over its status. An Event, a
//     metric and `atollctl doctor` report it. Its pool gets no claims, neither from the hub nor from this cluster. Its sandboxes
//     keep running, and can be reached and released.
//   - A pause ends on its own: when no other controller has written the status for 2 min, or when the lease was released or not
//     renewed for its duration. If the other controller is still active, its next write after ours pauses the object again. Of
//     two that both persist, this one writes once in 2 min, and the object does not oscillate: TestTwoWriters.
//   - I11: times are measured on the monotonic clock from when this process saw a write; because managed fields and leases only
//     distinguish one write from the next. A worker that finds a pool which another controller wrote last waits 2 min first,
//     however old that write is.
//   - I10: only contested objects are remembered, and only until an hour has passed without a question about them: TestForgotten.
//     Leases of nodes are not read.
//
// # What is not noticed
//
//   - A controller that writes only Pods; because Pods are cached without managed fields.
//   - A controller whose lease was not named, until it writes a status.
//   - Another installation of Atoll whose lease was not named; because its writes look like ours.
//   - What the other controller did between our read and our write. Writes test what they were decided from, so the later one
//     loses.
package foreigncontroller
