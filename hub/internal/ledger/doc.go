// SPDX-License-Identifier: Apache-2.0

// Package ledger stores what the hub durably knows of claim keys. It decides nothing.
//
// In go records and the revisions at which they were read; out come records, or store.ErrConflict where another write came
// first. Every write of a record carries all of its entries in one transaction:
//
//	claim/<key hash>                       Record
//	id/<sandbox id>                        IDRecord: of sandboxes with a key
//	expire/<unix seconds>/<one of above>   when to look whether it can go, in the order of time
//	open/<key hash>                        pending claims that have no waiting caller, for the next process to take up
//
// Times are the hub's wall clock. A record that cannot be read fails its own calls and no others: FuzzRecord of package claims.
package ledger
