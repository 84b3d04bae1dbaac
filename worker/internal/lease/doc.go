// SPDX-License-Identifier: Apache-2.0

// Package lease reports whether this process leads right now.
//
// In: the Lease writes of leader election. Out: Held, and the leader's Address, which the identity in the Lease can contain. It keeps I2:
// Held is true for at most one process at a time.
//
// Leader election reports a lost lease too late, for example to a process that was suspended. Lock wraps its Lease lock.
//
//   - A write is valid for the duration it states, from before it is sent, on a clock that continues during sleep; because other candidates
//     count from later (I11): TestHeld. A write that shortens the lease takes effect from before it is sent; because its response may be
//     lost: TestAShorterLeaseCountsAtOnce.
//   - It renews no more often than needed; because leader election has one interval for leaders and followers: TestRenewsNoMoreThanNeeded.
//   - A process whose lease has lapsed serves nothing. It continues if it can renew within 14 s and the record shows that no other has led
//     meanwhile. Otherwise it ends, and leads again only with another incarnation: TestALapsedLeaseIsNotTakenAgain.
//   - A lease is 6 s long while the API server responds within a second, so a killed leader has a successor within 7.1 s: 6 s after a
//     follower saw the last renewal, and two of its pauses of up to 0.55 s: TestTakeover. Renewals are sent every 1 to 1.55 s and are valid
//     for 5 s, so an API server may stop for 3.4 s unnoticed.
//   - After a slow response the lease is 15 s long. A renewal may take requestTimeout, 6.5 s of the deadline of 10 s; because one sent at 0
//     s is valid for 14 s, and the next is there by 13.5 s: TestASlowAPIServerCostsNoLease.
//   - Address ignores a predecessor with this process's own address; because that is no other replica: TestTheLeaseTellsWhereItsHolderIs.
//   - A release that conflicts with a renewal of this process is sent again; because a cancelled renewal may still be carried out:
//     TestAReleaseThatARenewalCrosses.
//   - Each renewal carries the API server's clock (package apitime); because that costs no write.
package lease
