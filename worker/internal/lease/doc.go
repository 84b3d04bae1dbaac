// SPDX-License-Identifier: Apache-2.0

// Package lease reports whether this process leads right now.
//
// In: the Lease writes of leader election. Out: Held, and the leader's Address, which the identity in the Lease can contain. It keeps I2:
// Held is true for one process at a time at most.
//
// Leader election reports a lost lease too late, for example to a process that was suspended. Lock wraps its Lease lock.
//
//   - A write is valid for the lease's duration from before it is sent, on a clock that continues during sleep; because other candidates
//     count from later (I11): TestHeld.
//   - It renews no more often than needed; because leader election has one interval for leaders and followers: TestRenewsNoMoreThanNeeded.
//   - A process whose lease has lapsed ends, and leads again with another incarnation only; because another may have held it meanwhile:
//     TestALapsedLeaseIsNotTakenAgain.
//   - A renewal may take RequestTimeout, 6.5 s of the deadline of 10 s; because one sent at 0 s is valid for 14 s, and the next is there by
//     13.5 s: TestASlowAPIServerCostsNoLease.
//   - Each renewal carries the API server's clock (package apitime); because that costs no write.
package lease
