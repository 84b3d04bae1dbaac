// SPDX-License-Identifier: Apache-2.0

// Package grants keeps who may do what in the hub's registry: API keys, roles and bindings, limits.
//
// In go the calls of the services Keys and Access, and tokens; out come identities, grants and refusals (package access).
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
// A key and the policy are written by compare-and-swap. A replica watches access/, so that a revocation holds everywhere within a second,
// and ends the conversations and watches that the key has. The hub of a bbolt is alone, and knows its own writes. A restore keeps the
// keys and the policy that are there: what was revoked since the backup stays revoked. What is taken up while everything is read waits
// for that; because the older read would make a revoked key valid again: TestARevocationDuringAReadHolds.
//
// Last uses are collected for a minute and written together, in no caller's way. A crash loses a minute of them.
//
// # What is refused
//
//   - A key gives no more than its maker has, neither by its scopes nor by what is bound to its name or its team; because who may make or
//     rotate keys and is not an admin would make itself one: TestKeysGiveNoMore, TestBoundKeysGiveNoMore.
//   - A policy that takes from its caller the right to change it, unless it is forced.
//   - A name that the file (--api-keys-file) has. Where a file gets a name that the store has, the file's key counts.
//   - A caller that may change the policy can give itself everything: update on access is as much as admin.
//
// # The first key
//
// A hub that takes keys, has no file of them, and whose store has no key for everything that is valid, makes one at its start: bootstrap,
// and writes its token to bootstrap-token in its data directory. So a restart, by who may read that directory, is the way back in.
//
// # Limits
//
// A claim counts for its team and for its key. Live sandboxes are counted from what clusters list, with the claims of this replica since:
// at most a few seconds late. Of several replicas each admits its share of claims a second: a caller that uses one replica alone gets
// 1/n of its rate, and never more than the whole together. Live sandboxes and conversations are bounded by each replica: the bound
// holds up to what the other replicas admit before they hear of each other.
package grants
