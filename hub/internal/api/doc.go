// SPDX-License-Identifier: Apache-2.0

// Package api implements the hub's public API: it authenticates callers, checks their scopes and calls the responsible package.
//
// In go calls of atoll.sandbox.v1, over gRPC or translated from REST by package serve. Out come responses of claims and fleet, or
// a typed error.
//
//   - The keys file and logs hold the SHA-256 of a bearer token, never the token.
//   - The keys file is reloaded when it changes. While it cannot be read, the previous keys stay valid.
//   - Without a keys file every caller may do everything, and the hub listens on loopback only.
//   - Scopes: read shows; claim shows, creates and ends sandboxes; admin does everything.
//   - A caller sees and names only the team, user and namespaces of its key. Access to all of them is explicit (allTeams,
//     allNamespaces): a key without a team covers what has no team; a key without namespaces sees nothing.
//   - A call about an Env affects every team, and needs a key for all teams. A call about the whole hub (drain, forget, back up,
//     accept a loss) needs a key for all teams and namespaces.
//   - A call that is not implemented fails with UNIMPLEMENTED and names what is missing.
package api
