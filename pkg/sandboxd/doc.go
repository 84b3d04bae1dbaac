// SPDX-License-Identifier: Apache-2.0

// Package sandboxd calls the daemon of a sandbox, which is atoll-sandboxd. It is used by the hub's API and by the gateway for E2B clients.
//
// In: access to the daemon's port, and the daemon's token. Out: calls of the daemon.
//
//	token.go   the token of each daemon, derived from one key
//	client.go  calls: Do for files, Call and Stream for Connect, and Init, the first call
//
// A daemon accepts the token of its first Init. The token is derived from the hub's key and the sandbox's id, so that the API and the
// gateway set the same token, whichever is first: both can use sandboxes of the public API and of E2B clients.
package sandboxd
