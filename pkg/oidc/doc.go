// SPDX-License-Identifier: Apache-2.0

// Package oidc authenticates callers by the ID tokens of OpenID Connect issuers, and by ServiceAccount tokens of Kubernetes clusters.
//
// In go a file of issuers and a token; out comes an access.Identity: user, groups and team, as the issuer's claims say.
//
//	config.go   the file: issuers, their audiences, how claims become users, groups and teams
//	oidc.go     Authenticator: which issuer a token is of, and whether it is valid now
//	keys.go     the keys of one issuer: found by discovery, cached, fetched again at a bounded rate
//	claims.go   from claims to an Identity
//
// # Rules
//
//   - A token is not parsed before its length is checked, and costs no network before its issuer is known.
//   - An issuer's keys are fetched every ten minutes, so that a key which it withdraws is refused soon. A token of an unknown key has them
//     fetched at once, but at most twice in ten seconds, whatever callers send. Callers wait for one fetch together, for three seconds.
//   - While an issuer does not respond its keys stay good for a day. Tokens that they do not prove are UNAVAILABLE, not UNAUTHENTICATED.
//     Callers of other issuers notice nothing.
//   - exp, nbf and iat are compared with the hub's clock, with a tolerance of two minutes (I11).
//   - Names of different issuers do not collide: with several issuers each has a prefix. No issuer but one of a cluster's ServiceAccounts
//     names users or groups that begin with system:, which Kubernetes keeps for itself.
//   - The claim email counts only beside email_verified: true; because without it a user may have typed another's address:
//     TestIdentityOfClaims.
package oidc
