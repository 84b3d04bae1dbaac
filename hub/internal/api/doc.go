// SPDX-License-Identifier: Apache-2.0

// Package api is the public API as the hub answers it: who calls, what they may, and which part of the hub knows.
//
// In go calls of atoll.sandbox.v1, by gRPC or translated from REST by package serve; out come the answers of claims and
// fleet, or a typed error. A bearer token is known by its SHA-256 alone: the keys file holds no secret, and neither do
// logs. The file is read again when it changes; one that cannot be read leaves the keys that were valid before.
//
// Scopes: read shows, claim creates and ends sandboxes and shows, admin does everything. Team, user and namespaces of a
// key are all that a caller sees and may name. All of them has to be said (allTeams, allNamespaces): a key without a team is for
// what has none, and one without namespaces sees nothing. What concerns an Env, and so every team, needs a key for all teams; what
// concerns the whole hub (to drain, forget, back up, accept a loss) needs one for everything. Without a keys file every caller
// may do everything, and the hub listens on loopback only.
//
// Calls that are not built answer UNIMPLEMENTED and say what is missing.
package api
