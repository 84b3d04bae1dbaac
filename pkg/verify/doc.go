// SPDX-License-Identifier: Apache-2.0

// Package verify checks a running federation against its invariants, from outside: it reads what the API servers hold and
// what the hub says, and trusts neither.
//
// In go snapshots of clusters and, optionally, of the hub's view; out come findings that name the invariant, the cluster
// and the object. Check is pure. What is only eventually true (I4, and the hub's view of Pods) is reported like the rest:
// the caller decides how long to give it, Settle does so by checking again until nothing is found.
//
// Checked: I1 (one sandbox, one Pod), I2 (one live Pod a claim key, over all clusters), I3 (each Env's local segment is its
// own cluster's), I4 (foreign segments equal their owners'), I13 (an idle Pod carries nothing of a tenant). The others
// need history, which a look at the present cannot have; their tests are in e2e.
package verify
