// SPDX-License-Identifier: Apache-2.0

// Package ledger stores the hub's durable records of claim keys. It decides nothing.
//
// In go records and the revisions at which they were read. Out come records, or store.ErrConflict if another write came first.
// Every write of a record carries all of its entries in one transaction:
//
//	claim/<key hash>                       Record
//	id/<sandbox id>                        IDRecord: of sandboxes with a key
//	expire/<unix seconds>/<one of above>   when to check whether it can be dropped, in time order
//	open/<key hash>                        pending claims without a waiting caller, which the next process resumes
//
// In an encrypted file these keys are in clear: a key hash is SHA-256 over team, namespace and claim key, cut to 128 bits, without a
// salt, so a guess of all three can be confirmed.
//
// Times are the hub's wall clock. A record that cannot be read fails its own calls and no others: FuzzRecord of package claims.
package ledger
