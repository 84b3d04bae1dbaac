// SPDX-License-Identifier: Apache-2.0

// Package grants stores access control in the hub's registry: API keys, roles and bindings, limits.
//
// In: calls of the services Keys and Access, and tokens. Out: identities, grants and refusals (package access).
//
//	record.go    a key as it is stored, and what is valid
//	grants.go    the Service: what it knows of the store, and how it learns of changes
//	keys.go      the service Keys, and the Authenticator of the keys in the store
//	policy.go    the service Access: the policy, and questions about it
//	bootstrap.go the first key of a hub that has none
//	decide.go    limits, pure: a token bucket, and what a caller may have
//	limits.go    limits, applied to claims and conversations
//
// # In the store
//
//	access/policy       the AccessPolicy, as JSON; its revision is the entry's
//	access/key/NAME     a key, with the SHA-256 of its token
//	access-used/NAME    when a key was last used, to the minute
//
// Keys and the policy are written by compare-and-swap. A replica watches access/, so that a revocation takes effect everywhere within a
// second, and ends the key's conversations and watches. A hub on bbolt is the only writer and knows its own writes. A restore keeps the
// keys and the policy of the store: what was revoked since the backup stays revoked. A change that arrives while the store is read in full
// is applied after the read; because the older read would make a revoked key valid again: TestARevocationDuringAReadHolds.
//
// A change that arrives after a later one of the same entry does not count; because it would bring a revoked key back. It may arrive from
// the watch (TestALateWatchRevivesNoKey), or from a write of this replica (TestALateWriteRevivesNoKey, TestARotationRevivesNoRevokedKey).
//
// Last uses are collected for a minute and written together, without delaying a caller. A crash loses up to a minute of them.
//
// # What is refused
//
//   - A key gives no more permissions than its creator has, neither by its scopes nor by bindings to its name or its team; because
//     otherwise a caller that may create or rotate keys could make itself an admin: TestKeysGiveNoMore, TestBoundKeysGiveNoMore.
//   - A policy under which its caller could not change the policy any more is refused, unless it is forced.
//   - A name of a key in the file (--api-keys-file) is refused. If a file later gets a name that the store has, the file's key counts.
//   - A caller that may change the policy can give itself every permission: update on access is as powerful as admin.
//
// # The first key
//
// At its start, a hub that accepts keys and has no keys file creates the key bootstrap if its store has neither a valid key nor a binding
// for everything, and writes its token to bootstrap-token in its data directory. So an operator that can read that directory regains access
// by a restart.
//
// # Limits
//
// A claim counts for its team and for its key. Live sandboxes are counted from the lists of clusters, plus the later claims of this
// replica: the count is at most a few seconds old. With several replicas, each admits its share of claims per second: a caller that uses
// one replica gets 1/n of its rate, and all replicas together never exceed the rate. Each replica bounds live sandboxes and conversations:
// the bound may be exceeded by what the other replicas admit before the replicas hear of each other.
package grants
