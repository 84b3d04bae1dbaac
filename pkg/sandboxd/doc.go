// SPDX-License-Identifier: Apache-2.0

// Package sandboxd calls the daemon of a sandbox, which atoll-sandboxd is: the hub's API does, and the gateway for E2B clients.
//
// In: a way to the daemon's port, and the daemon's token. Out: calls of it.
//
//	token.go   the token of each daemon, from one key
//	client.go  calls: Do for files, Call and Stream for what is Connect's, and the first call, Init
//
// A daemon takes the token of its first Init. The token follows from the hub's key and the sandbox's id, so that the API and the
// gateway set the same one, each if it comes first: a sandbox of the public API and one of an E2B client are used by both.
package sandboxd
