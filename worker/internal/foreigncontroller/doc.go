// SPDX-License-Identifier: Apache-2.0

// Package foreigncontroller pauses reconciliation of objects that another controller manages: the former system, or another installation of
// Atoll.
//
// In: pools and Envs, and the cluster's leases. Out: whether an object is Paused, for packages env, pool, standalone, adoption and agent.
// pkg/foreigncontroller detects the other controller.
//
//	one object     another controller wrote its status after us, less than 2 min ago
//	every object   a lease that the operator named (--rival-leases) is being renewed
//
// # Rules
//
//   - I14: only named leases count, each for a minute after its renewal; because users can create leases: TestLeaseOfAnother.
//   - A paused object is not written, status included; because two controllers would fight. An Event, a metric and `atollctl doctor` report
//     it. Its pool gets no claims; its sandboxes keep running, and can be reached and released.
//   - A pause ends after 2 min without another's write, or with the lease. If both controllers persist, this one writes once in 2 min:
//     TestTwoWriters.
//   - I11: times are monotonic from when this process saw a write; because managed fields only distinguish writes. So a new worker waits 2
//     min, however old the write is.
//   - I10: only contested objects are remembered, until an hour after the last question: TestForgotten. Leases of nodes are not read.
//
// # What is not noticed
//
//   - A controller that writes only Pods; because Pods are cached without managed fields.
//   - A controller without a named lease, until it writes a status.
//   - Another installation of Atoll without a named lease; because its writes look like ours.
//   - A write between our read and our write; the later write loses.
package foreigncontroller
