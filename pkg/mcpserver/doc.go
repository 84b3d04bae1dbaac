// SPDX-License-Identifier: Apache-2.0

// Package mcpserver offers sandboxes to agents by the Model Context Protocol.
//
// In: a client of a hub (package client), and calls of tools. Out: sandboxes, and what commands and files in them say.
//
//	server.go  a session and its sandboxes
//	tools.go   the tools: create, run, read, write, list, release
//
// # Rules
//
//   - A session uses the sandboxes that it has created, and no others; their number is bounded.
//   - They are released when the session ends. Should this process die first, their idle timeout ends them.
//   - What a tool returns has a bound that suits a model's context; the rest is told to be left out.
package mcpserver
