// SPDX-License-Identifier: Apache-2.0

// Package history holds what callers were answered against what claims promise, whoever the callers are and whatever stood
// between them and the federation: real processes, or a simulation of them.
//
// In go calls as their callers saw them begin and end; out comes what no order of these calls explains.
//
// History is about claim keys (I2). Each key is a register that takes one sandbox and then ends; that every answer fits, in
// the order in which the calls can have been carried out, is a question of linearizability and porcupine's to decide.
//
//	answered a sandbox   the key has not ended, and was never answered with another one
//	answered a record    the key has ended, and not with another sandbox than the answered one
//	ended                by a cancel, or a release of its sandbox, once that has begun: nothing else ends a sandbox
//
// A call without a known outcome may have been carried out at any time after it began, or never. A create of which nothing
// is known binds nobody: a sandbox that nobody was told of may be replaced by another one.
//
// Holdings are about Pods (I1), with a key or without: a Pod that was answered and not given back is answered as no other
// sandbox. They also know what must still be there at the end (I6).
package history
