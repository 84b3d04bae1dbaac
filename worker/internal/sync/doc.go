// SPDX-License-Identifier: Apache-2.0

// Package sync shows other clusters' segments in the status of the local Envs.
//
// In go what the hub tells of other clusters, whether a hub is connected, and the Envs as the informer sees them; out come
// server-side applies of status by the field manager atoll-sync, under a ServiceAccount of its own. Nothing in Atoll
// decides by what is written here: it is for people, and for tools that read one cluster.
//
//	foreign.go  what the hub has said: chunks, deltas, removals
//	decide.go   pure: what an Env should show, and whether that takes a write
//	budget.go   pure: which Env may be written now, oldest dirty first
//	apply.go    the write
//	syncer.go   the loop
//
// # I3, no local segment is ever written
//
// A segment gets into an apply only as an entry, and newEntry refuses the local ClusterID, whoever named it: the hub, or
// the Env's present status. encode refuses it again.
//
// # I5, absence is not deletion
//
// Every apply holds all foreign segments of its Env, since what an apply leaves out is removed. What this process knows
// nothing of is therefore carried over from the Env's present status: a segment is left out only if its cluster is among
// those that the hub says it knows, or after an explicit removal. So a restart of the worker, or of the hub, removes
// nothing.
//
// # I14, a message that cannot be used
//
// The hub's word is checked as it comes in: names, texts, the size of a segment. What is not valid is dropped alone, counted and
// logged; what was told before stays.
//
// # Writes
//
// The body is raw JSON, so that isLocal=false is there, with metadata.uid. An apply to an Env that was deleted fails
// instead of creating it: that is so for every apply to the status subresource (on the object itself it is the uid that
// prevents it). The API server does not compare the uid there, so a write can still land on an Env that was just made
// under the same name; it is the same federated Env, and its next event has it looked at again. Entries have counts and states, no resources. Past 128 KiB the members of every segment
// collapse into one total a scaling group, and if that is too much into one total; Federated says TooLarge. Times
// (lastSnapshotTime) cause no write.
// An Env is written at most every 3 s, and the cluster takes at most 5 writes and 200 KB a second.
//
// HubUnreachable is shown after 15 s only, so that a restart of the hub is not two writes for every Env.
package sync
