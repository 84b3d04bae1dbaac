// SPDX-License-Identifier: Apache-2.0

// Package client lets a Go program use sandboxes: create one, run commands in it, move files, reach its ports, and release it.
//
// In: the address of a hub and an API key. Out: sandboxes. It calls REST alone; errors are *problem.Error, as the server has them.
//
//	client.go   a server, calls of its API
//	create.go   claims, which are repeated under one key until their outcome is known
//	sandbox.go  a sandbox, its ports, its release
//	run.go      commands
//	files.go    files
//
// # Rules
//
//   - A create that fails, or whose caller gives up, leaves no sandbox behind: the claim is cancelled. A key that the caller chose is
//     the caller's: it is not cancelled.
//   - Files are streamed. Of a command's output a Result keeps the first bytes; writers get all of it.
package client
