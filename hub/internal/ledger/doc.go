// SPDX-License-Identifier: Apache-2.0

// Package ledger stores the hub's durable records of claim keys. It decides nothing.
//
// In: records and their revisions. Out: records, or store.ErrConflict if another write came first. Each write changes all its entries in
// one transaction:
//
//	claim/<key hash>                       Record
//	id/<sandbox id>                        IDRecord: of sandboxes with a key
//	expire/<unix seconds>/<one of above>   when to check whether it can be dropped
//	open/<key hash>                        pending claims without a waiting caller, for the next process; the replica that pursues it
//
// Rules:
//
//   - The keys of these entries are never encrypted. They contain unsalted hashes of team, namespace and claim key; so a reader of the
//     store can confirm a guess.
//   - Open claims are listed in full, page by page; because a claim that is omitted is never resumed: TestAllOpenClaimsAreListed.
//   - Times are wall-clock times. An unreadable record fails only its own calls (ErrDamaged): of package claims FuzzRecord,
//     TestADamagedRecordStopsNothingElse, TestADamagedRecordKeepsNoClusterUnheard, TestADamagedRecordHidesNoLostSandbox and
//     TestADamagedRecordDelaysNoEndsOfOthers.
package ledger
