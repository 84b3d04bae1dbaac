// SPDX-License-Identifier: Apache-2.0

// Package lease reports whether this process leads right now.
//
// In: the Lease writes of client-go's leader election. Out: Held, and the address of the leader. It keeps I2: Held is true for
// one process at a time at most.
//
// client-go's leader election reports when leadership was won and, too late, when it was lost: a process that was suspended, or
// whose renewals hang, still believes that it leads. Lock wraps the Lease lock that leader election writes through.
//
//   - Before each write it reads a clock that continues while the machine sleeps. A successful write is valid for the lease's
//     duration from then. Every other candidate counts that duration from a later moment, when it saw the write. So Held is true
//     for at most one process at a time, whatever a wall clock does (I11); held by TestHeld.
//   - It renews no more often than needed, because leader election has one interval for leaders and followers; held by
//     TestRenewsNoMoreThanNeeded.
//   - A process whose lease has lapsed, for example because it was suspended, never gets it again; held by
//     TestALapsedLeaseIsNotTakenAgain. Leader election would acquire a lease that another process had held and released
//     meanwhile, and not notice. The process must end, and leads again with another incarnation (I2).
//
// # A slow API server
//
// A renewal is one request, which ends within RequestTimeout: 6.5 s of the worker's deadline of 10 s. A renewal sent at 0 s is
// valid for 14 s. If it takes 6.5 s, the next one follows half a second later, and its response arrives at 13.5 s. The longer
// wait weakens nothing: Held counts from when the request was sent. A request that is carried out after its client has left only
// extends the end that other processes see. Held by TestASlowAPIServerCostsNoLease.
//
// # What the Lease carries
//
// The identity in the lease can contain the address at which the other replicas reach this one. Address returns that of the
// leader.
//
// The Lease also carries the state of the API server's clock from one leader to the next, see package apitime. It is written with
// each renewal and read before the first, so it costs no extra write.
//
// Package claim calls Held after a Pod was written and before the sandbox is returned (I2).
package lease
