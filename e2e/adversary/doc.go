// SPDX-License-Identifier: Apache-2.0

// Package adversary attacks a federation that honest callers use.
//
// In: rows, each an attack by one of six roles (anyone, tenant, sandbox, cluster, editor, reader of disks). Out, as a table and JSON
// (-out): peak memory; the hub's processor time and honest latency, before and during; what the attacker sent and was
// told.
//
//   - Two clusters are planes; hub and workers are processes with a memory limit. Some limits are lowered, so that attacks take seconds,
//     unless -full.
//   - The attacker has a lower priority and one processor; because it shares the machine. It has its role's means only, and a tenant the
//     limits of its team; a cluster speaks api/federation/v1 itself.
//   - Honest sandboxes are released after a row; because each release costs a new Pod, and these alone would keep two processors busy.
//
// # What each row asserts (I14, I15)
//
//   - Peak resident memory of hub and workers stays below -rss.
//   - Honest p99 is at most twice that before the attack, or below -floor, at 20 claims a second (package load). A row above is repeated
//     twice; because noise does not repeat. Conversations cost the API server itself, which is on the same machine: where they slow honest
//     claims, p99 is at most twice that while the same conversations are opened at the API server, without hub and worker.
//   - Each honest claim gets a sandbox of its team, in a cluster that it named.
//   - No honest cluster loses its stream, state or incarnation; another tenant's sandbox and claim key stay.
//   - The attacker is told what it should be (told), and no more (never). A row without attempts, bytes and responses fails.
//   - The row's own check holds afterwards.
//
// After each role, package verify and the logs are clean.
//
//	go test ./e2e/adversary   a few rows
//	make adversary            all rows (ROWS: a regular expression, FULL=1: full size, HUBS=3: also those on the replicas' own ports)
//	make rotation             eight rows that change with the commit
package adversary
