// SPDX-License-Identifier: Apache-2.0

// Package e2b serves E2B's clients. It translates their control plane to calls of the public API, and their sandboxes' traffic to requests
// to ports.
//
// In: requests of E2B clients. Out: requests to the public API of the same process, with the caller's own API key.
//
//	gateway.go  routes, errors
//	control.go  create, list, get, timeout, connect, pause, kill
//	model.go    requests and responses
//	builds.go   templates that name an image
//	warm.go     sandboxes that try the image of a build
//	data.go     requests to sandboxes
//	token.go    access tokens, keys in E2B's form
//	inside.go   connections within the process
//	key.go      the key of the gateway and of daemons' tokens
//	front.go    flags, and the listening gateway of a hub or a worker
//
// # Rules
//
//   - The gateway has no permissions of its own: every request, to a sandbox too, goes through the public API with the key for which the
//     token was made. A revoked key is rejected immediately; limits, audit and permissions apply as they do to the public API.
//   - An access token contains the caller's key and the sandbox's id, encrypted with the gateway's key. Nothing is stored, every replica
//     can read it, and a sandbox never sees it: TestI14ASandboxNeverSeesItsCallersToken. The daemon has its own token, derived from the
//     sandbox's id.
//   - The environment is sent only to the daemon, after the claim: it is in no Pod, record or log.
//   - The status of a build is the outcome of sandboxes that have its image: TestTheStatusOfABuildIsTrue.
//   - A request to a port needs a token in a header, so that pages of other origins cannot use a caller's browser.
package e2b
