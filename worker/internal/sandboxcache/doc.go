// SPDX-License-Identifier: Apache-2.0

// Package sandboxcache defines the content of the worker's cache and its indexes.
//
// In: a manager's cache, or informers. Out: Pods of a pool, pools of an Env, Envs of a template.
//
//	filters.go    cached objects and fields
//	share.go      shares equal parts of a pool's Pods
//	templates.go  shares equal parts of pools and Envs
//	indexes.go
//	find.go       typed getters
//	live.go       live reads
//	snapshots.go  an Env's members with the snapshots of its status
//
// # Rules
//
//   - Every index takes memory for each object, so each must have a reader: TestIndexersAreTheIndexes. Objects that are read once are read
//     live.
//   - Reconcilers read from the cache; because their writes test what they were decided from.
//   - Live reads are for data that must not be stale: idle Pods after a restore, resources before a resize, Pods whose wait was long.
//   - Claims are served from package inventory; because the cache lacks responses to writes, and finds no idle Pod in O(1).
//   - A cached object is never sent back; because unread fields are stripped.
//   - A cached Env's members have their snapshots, wherever the Env has them: TestMembersHaveTheirSnapshots.
//   - The idle Pods of a pool share spec, labels and owners; because each decoded copy is 3 KiB: TestPodsOfAPoolShareWhatIsEqual. Pools and
//     Envs share the Pod specs of templates and the resources: TestEnvsAndPoolsShareWhatIsEqual.
//   - Fields that a decision reads are not stripped: TestStripPodKeepsWhatIsDecidedBy, TestStripPodKeepsResourcesOfPausedPods,
//     TestStripKeepsWhoWrote. The content of Secrets is stripped: TestStripSecretKeepsNoSecret.
package sandboxcache
