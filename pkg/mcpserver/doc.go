// SPDX-License-Identifier: Apache-2.0

// Package mcpserver offers sandboxes to agents by the Model Context Protocol.
//
// In: a client of a hub (package client), and calls of tools. Out: sandboxes, and what commands and files in them say.
//
//	server.go   a session and its sandboxes
//	tools.go    the tools: create, run, read, write, list, port, release
//	handler.go  sessions over HTTP, at the hub's /mcp
//	remote.go   one of them, its requests and its calls of the API
//
// # Rules
//
//   - A session uses the sandboxes that it has created, and no others; their number is bounded.
//   - They are released when the session ends. Should this process die first, their idle timeout ends them.
//   - Over HTTP a session's calls of the API are made with the credentials of its agent's latest request, from its address; so that
//     permissions, limits and the audit are those of REST.
//   - A session's id is random, and for any other caller there is no such session: TestASessionIsItsCallers.
//   - An agent that has no request under way for a while has left; its session ends: TestASessionThatIsLeftEnds.
//   - Sessions are bounded in all and by caller, until their sandboxes are released; so are their requests, and calls of tools:
//     TestI14SessionsAreBounded.
//   - What a tool returns has a bound that suits a model's context; the rest is told to be left out.
package mcpserver
