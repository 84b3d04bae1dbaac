// SPDX-License-Identifier: Apache-2.0

// Package signin gets tokens of an OpenID Connect issuer for a user at a terminal, keeps them in a file, and renews them.
//
// In go an issuer and a client; out come ID tokens.
//
//	signin.go  Client: discovery, renewal, sign-out
//	code.go    authorization code with PKCE, by a browser and a redirect to this machine (RFC 8252)
//	device.go  device code (RFC 8628), for a machine without a browser
//	store.go   the file of tokens
//
// # Rules
//
//   - A redirect counts once, within its time, with the state that was sent, and with the issuer if it
//     names one (RFC 9207). One that does not fit ends nothing: another program cannot end the sign-in.
//   - The code is of no use without the verifier, which never leaves this process. The ID token must have the nonce that was sent.
//   - Tokens are in a file of mode 0600. Processes that renew at one time do it one after the other; because an issuer may take a refresh
//     token once.
package signin
