// SPDX-License-Identifier: Apache-2.0

// Package adversary runs attacks on a federation while honest callers claim sandboxes.
//
// In go the rows of a table: each is one attack by one of five roles (anyone, tenant, sandbox, cluster, editor). Out come, for
// each row, the peak memory of the hub, the latency of honest claims before and during the attack, what the attacker sent and
// what it was told; as a table and as JSON (-out).
//
// The federation is real: two clusters are planes, hub and workers are processes with a memory limit (RLIMIT_DATA, which the
// kernel holds, and GOMEMLIMIT below it). The hub asks for API keys. Some of its limits are lower than their defaults, so that an
// attack reaches them within seconds; -full restores the defaults and makes the attacks larger. The attacker is a process of its own, at
// a lower priority and on one processor; because it shares the machine with what it attacks. It has only what its role has: an
// address of its own, a tenant's key, a cluster's certificate, a namespace's ServiceAccount. An adversary's cluster speaks
// api/federation/v1 itself, so that it can say what no worker says.
//
// # What each row asserts (I14, I15)
//
//   - Resident memory of hub and workers stays below a limit (-rss). The kernel keeps the peak.
//   - The honest p99 during the attack is at most twice that right before it, or below -floor. Honest claims arrive at 20 a second,
//     whatever becomes of them (package load). A row above that is repeated twice; because the planes share the machine, and noise does
//     not repeat.
//   - No honest claim fails. Each gets a sandbox of its own team, in a cluster that it named.
//   - No honest cluster loses its stream, its state or its incarnation.
//   - A sandbox and a claim key of another tenant are as before.
//   - The attacker is told what it should be (told), and nothing that it should not (never). A row without attempts, bytes and
//     responses fails; because its attack did not arrive.
//   - What the row itself checks in the federation afterwards.
//
// At the end of each role, package verify finds nothing. The programs' logs have no crash.
//
//	go test ./e2e/adversary                       a few rows, in seconds
//	make adversary                                all rows (ROWS: a regular expression, FULL=1: full size)
//	make rotation                                 ten rows that change with the commit
package adversary
