// SPDX-License-Identifier: Apache-2.0

// Package claims turns a request for a sandbox into one sandbox of one cluster, and remembers it by its claim key.
//
// In go validated requests of a Principal, the fleet's views, and what workers answer; out come sandboxes, decisions and
// typed errors. Decisions (what an answer means, where a claim goes next, what a terminal record or a stray Pod changes)
// are pure functions in decide.go.
//
// # Claims with a key
//
// At most one sandbox is ever answered for a key (I2). The rules, each with a test that names it:
//
//   - A durable record (cluster, attempt, request) precedes every dispatch. A crash before it leaves nothing; after it a
//     retry asks the same cluster for the same attempt, and the worker answers from its key index.
//   - Retries in this hub join the flight that is under way, with the first one's deadline; each waits on its own context.
//   - Only an explicit refusal, or the certainty that nothing was ever sent for this attempt, lets the claim go elsewhere,
//     under the next attempt number and after another durable write. An unclear outcome stays with its cluster: the hub
//     asks again until the deadline, then answers OUTCOME_UNKNOWN.
//   - Once a sandbox was answered the record says so (written behind the answer, grouped), and from then on the hub looks
//     the key up and never claims for it again: a worker that has lost its memory cannot make a second sandbox.
//   - A cancel is durable before it is sent. A grant that arrives later is released unanswered, and so is a Pod that a
//     worker reports for a record that ended or moved on.
//   - A terminal record is kept until retention after the end; a record that never ended is dropped only once its cluster
//     has said that it holds nothing for the key.
//
// The record keeps the request itself where the design names a hash of its parameters: it is compared field by field, so
// that no encoding has to stay stable, and a claim that nobody waits for (wait NONE) is taken up again after a restart.
// Persisted times are the hub's wall clock and decide retention alone.
//
// # Claims without a key
//
// They write nothing here. An unclear outcome moves on. A grant that arrives after its claim moved on is released
// by package attach, one whose caller has gone here, and one whose stream broke under its answer by the worker itself. Only a worker that dies
// between the two leaves a sandbox that nobody was told of, until first-activity timeouts are built.
//
// startupTimeout bounds queueing and starting together. Where the request names none the hub waits two minutes, also for
// a pool whose own default is longer.
package claims
