// SPDX-License-Identifier: Apache-2.0

// Package lease tells whether this process leads right now.
//
// client-go's leader election says when leadership was won and, too late, when it was lost: a process that was suspended,
// or whose renewals hang, goes on believing. Lock wraps the Lease lock that leader election writes through, and notes,
// before each write, a clock that goes on while the machine sleeps. A write that succeeded holds for the lease's duration
// from then: every other candidate counts that duration from a later moment, when it saw the write. So Held is true for
// at most one process at a time, whatever a wall clock does (I11). It renews no more often than needed, however often leader
// election, which has one pace for leaders and followers, wishes to.
//
// A process whose lease has lapsed, if only because it was suspended, never gets it again, though leader election would take
// one that somebody else has had and given back meanwhile, and not even notice: the process has to end, and leads anew with
// another incarnation (I2).
//
// # An API server that takes its time
//
// A renewal is one request, answered or given up within RequestTimeout: 6.5 s of the worker's deadline of 10 s. A renewal that
// was sent at 0 s is good for 14 s; one that takes 6.5 s is followed by the next half a second later, whose answer comes at
// 13.5 s. That the answer was waited for longer weakens nothing: Held counts from when the request was sent, and one that arrives
// after its client has left moves only the end that others see, to later.
//
// The identity in the lease can say where the other replicas reach this one; Address is what the lease says of whoever leads.
//
// The Lease also carries what one leader leaves to the next of the API server's clock, see package apitime: it is written with
// each renewal and read before the first, at no write more.
//
// The claim service asks Held after a Pod was written and before the claim is answered (I2).
package lease
