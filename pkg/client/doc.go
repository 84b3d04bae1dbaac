// SPDX-License-Identifier: Apache-2.0

// Package client lets a Go program use sandboxes: create one, run commands in it, move files, reach its ports, and release it.
//
// In: the address of a hub and an API key. Out: sandboxes. It uses only REST; errors are *problem.Error, as the server sent them.
//
//	client.go   a server, calls of its API
//	create.go   claims, which are retried under one key until their outcome is known
//	sandbox.go  a sandbox, its ports, its release
//	run.go      commands
//	files.go    files
//
// # Rules
//
//   - A create that fails, or whose caller gives up, leaves no sandbox behind: the claim is cancelled. A claim whose key the caller chose
//     is not cancelled.
//   - Files are streamed. A Result keeps the first bytes of a command's output; writers get all of it.
package client
