// SPDX-License-Identifier: Apache-2.0

// Package ledger stores the hub's durable records of claim keys. It decides nothing.
//
// In: records and their revisions. Out: records, or store.ErrConflict if another write came first. A write has all entries in one
// transaction:
//
//	claim/<key hash>                       Record
//	id/<sandbox id>                        IDRecord: of sandboxes with a key
//	expire/<unix seconds>/<one of above>   when to check whether it can be dropped
//	open/<key hash>                        pending claims without a waiting caller, for the next process; the replica that pursues it
//
// Rules:
//
//   - These keys are never encrypted: unsalted hashes of team, namespace and claim key, so a guess can be confirmed.
//   - Open claims are listed in full, page by page; because one that is left out is never resumed: TestAllOpenClaimsAreListed.
//   - Times are wall clock. An unreadable record fails its own calls only (ErrDamaged): of package claims FuzzRecord,
//     TestADamagedRecordStopsNothingElse, TestADamagedRecordKeepsNoClusterUnheard, TestADamagedRecordHidesNoLostSandbox and
//     TestADamagedRecordDelaysNoEndsOfOthers.
package ledger
