// SPDX-License-Identifier: Apache-2.0

// Package sandboxcache is the one definition of what the worker's cache holds and by what it is searched, for the worker,
// for the tests that run parts of it on real API servers, and for the simulated clusters of package workertest.
//
//	filters.go  which objects are cached, and what of them
//	indexes.go  the fields that they are found by
//	find.go     typed getters: Cached from the informers, Live past every cache
//
// In go a manager's cache, or any other set of informers; out come Pods of sandboxes, pools of an Env, Envs of a template.
// Everything that a Pod is found by is a label of it, so that a live read asks the API server the same question that the
// cached one asks the index. One index knows more: a Pod whose pool label was edited by hand is found under its owner.
//
// # Cached or live
//
// Reconcilers read from the cache: what they write tests what it was decided from. Live reads are for what must not be late:
// what is idle after etcd was set back (package agent), what a Pod's resources are before they are changed and what it is
// when a wait has lasted too long (package sandboxes).
//
// # What is not read here
//
// Package inventory keeps an index of its own, fed by the same informers and by the answers to its own writes. A cache has only
// the former: it would show a Pod as idle that was handed out a moment ago, and finding the next idle Pod in it would be a
// scan, not O(1). So claims, their keys and what a caller is told of a sandbox come from there, and this is for everybody
// else. A leader's first list of sandboxes goes by the claim path's own connections, which no watch shares.
//
// # Nobody may send a cached Pod back
//
// Pods are halved before they are cached. Writes to Pods are patches written by hand. Envs, pools and templates lack what
// nobody reads of them; what is written into them is a difference, or starts from a live read.
package sandboxcache
