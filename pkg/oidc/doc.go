// SPDX-License-Identifier: Apache-2.0

// Package oidc authenticates callers by the ID tokens of OpenID Connect issuers, and by ServiceAccount tokens of Kubernetes clusters.
//
// In: a file of issuers, and a token. Out: an access.Identity with user, groups and team, taken from the token's claims.
//
//	config.go   the file: issuers, their audiences, how claims become users, groups and teams
//	oidc.go     Authenticator: the issuer of a token, and whether the token is valid now
//	keys.go     the keys of one issuer: found by discovery, cached, fetched again at a bounded rate
//	claims.go   from claims to an Identity
//
// # Rules
//
//   - The length of a token is checked before it is parsed, and its issuer must be known before it causes network traffic.
//   - An issuer's keys are fetched every ten minutes, so that a withdrawn key is soon rejected. A token with an unknown key triggers a
//     fetch immediately, but at most twice in ten seconds, whatever callers send. Callers share one fetch and wait for at most three
//     seconds.
//   - While an issuer does not respond, its keys remain valid for a day. Tokens that they do not verify are UNAVAILABLE, not
//     UNAUTHENTICATED. Callers of other issuers are not affected.
//   - exp, nbf and iat are compared with the hub's clock, with a tolerance of two minutes (I11).
//   - Names of different issuers do not collide: with several issuers, each must have a prefix. Only an issuer of a cluster's
//     ServiceAccounts may use names that begin with system:, which are reserved for Kubernetes.
//   - The claim email is used only together with email_verified: true; because otherwise a user may have entered another person's address:
//     TestIdentityOfClaims.
package oidc
