// SPDX-License-Identifier: Apache-2.0

// Package mcpserver offers sandboxes to agents with the Model Context Protocol.
//
// In: a client of a hub (package client), and calls of tools. Out: sandboxes, and the output of commands and files in them.
//
//	server.go   a session and its sandboxes
//	tools.go    the tools: create, run, read, write, list, port, release
//	handler.go  sessions over HTTP, at the hub's /mcp
//	remote.go   a session over HTTP, its requests and its calls of the API
//
// # Rules
//
//   - A session uses only sandboxes that it has created; their number is bounded.
//   - They are released when the session ends. If this process dies first, their idle timeout ends them.
//   - Over HTTP, a session calls the API with the credentials of its agent's latest request, and from its address; so that permissions,
//     limits and the audit are the same as for REST.
//   - A session's id is random, and the session does not exist for any other caller: TestASessionIsItsCallers.
//   - An agent that makes no request for a while has left, and its session ends: TestASessionThatIsLeftEnds.
//   - The number of sessions is bounded, in total and by caller; a session counts until its sandboxes are released. Its requests and tool
//     calls are bounded too: TestI14SessionsAreBounded.
//   - The output of a tool is bounded to suit a model's context, and states if a part was omitted.
package mcpserver
