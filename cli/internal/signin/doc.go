// SPDX-License-Identifier: Apache-2.0

// Package signin obtains tokens of an OpenID Connect issuer for a user at a terminal, stores them in a file, and renews them.
//
// In: an issuer and a client. Out: ID tokens.
//
//	signin.go  Client: discovery, renewal, sign-out
//	code.go    authorization code with PKCE, with a browser and a redirect to this machine (RFC 8252)
//	device.go  device code (RFC 8628), for a machine without a browser
//	store.go   the file of tokens
//
// # Rules
//
//   - A redirect is accepted once, within its time limit, with the state that was sent, and with the issuer if it names one (RFC 9207). Any
//     other redirect is ignored: another program cannot end the sign-in.
//   - The code is useless without the verifier, which never leaves this process. The ID token must have the nonce that was sent.
//   - Tokens are in a file of mode 0600. Processes that renew at the same time do so one after the other; because an issuer may accept a
//     refresh token only once.
package signin
