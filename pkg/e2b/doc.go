// SPDX-License-Identifier: Apache-2.0

// Package e2b serves E2B's clients: their control plane as calls of the public API, and their sandboxes' traffic as requests to ports.
//
// In: requests of E2B clients. Out: requests to the public API of the same process, with the caller's own API key.
//
//	gateway.go  routes, errors
//	control.go  create, list, get, timeout, connect, pause, kill
//	model.go    what callers send and get
//	builds.go   templates that name an image
//	warm.go     sandboxes that try the image of a build
//	data.go     requests to sandboxes
//	token.go    access tokens, keys of E2B's form
//	inside.go   connections within the process
//	key.go      the key of the gateway and of daemons' tokens
//	front.go    flags, and a gateway at an address: of a hub, or of a worker
//
// # Rules
//
//   - It has no rights of its own: every request, to a sandbox too, goes through the public API with the key for which the
//     token was made. A key that is revoked is refused at once, and limits, audit and permissions hold as they do there.
//   - An access token is the caller's key and the sandbox's id, sealed with the gateway's key: nothing is kept, each replica reads it, and
//     a
//     sandbox never sees it: TestI14ASandboxNeverSeesItsCallersToken. The daemon has a token of its own, derived from the id.
//   - Environment goes to the daemon alone, after the claim: it stands in no Pod, record or log.
//   - The status of a build is what became of sandboxes that have its image: TestTheStatusOfABuildIsTrue.
//   - A port needs a token in a header, so that no page of another origin uses a caller's browser.
package e2b
