// SPDX-License-Identifier: Apache-2.0

// Package sandboxcache defines, in one place, what the worker's cache holds and by which fields it is searched. The worker uses
// it, and so do the tests that run parts of the worker on real API servers and the simulated clusters of package workertest.
//
// In: the cache of a manager, or any other set of informers. Out: Pods of sandboxes, pools of an Env, Envs of a template.
//
//	filters.go  which objects are cached, and which of their fields
//	indexes.go  the fields that they are found by
//	find.go     typed getters from the cache
//	live.go     the same past every cache
//
// # Rules
//
//   - A Pod is found by its labels; because a live read can then ask the API server what a cached read asks the index:
//     TestCachedAndLiveAgree. The exception is a Pod whose pool label was edited by hand: one index finds it by its owner.
//   - Reconcilers read from the cache; because their writes test what they were decided from.
//   - Live reads are for what must not be stale: the idle Pods after etcd was restored (package agent), a Pod's resources before
//     they are changed, and a Pod whose wait has lasted too long (package sandboxes).
//   - Claims are not served from here. Package inventory has its own index, fed by the same informers and by the responses to its
//     own writes. The cache has no responses, so it would show a claimed Pod as idle, and finding the next idle Pod in it would
//     be a scan, not O(1). A leader's first list of sandboxes uses the claim path's own connections, which carry no watch.
//   - A cached object is never sent back to the API server; because it was stripped of unread fields. A Pod is written with a
//     JSON patch made by hand; an Env, a pool or a template with a difference, or from a live read.
//   - Fields that a decision reads are not stripped: TestStripPodKeepsWhatIsDecidedBy, TestStripPodKeepsResourcesOfPausedPods,
//     TestStripKeepsWhoWrote. The content of Secrets is: TestStripSecretKeepsNoSecret.
package sandboxcache
