// SPDX-License-Identifier: Apache-2.0

// Package environment hands the environment of a claim to the daemon of its sandbox (atoll-sandboxd), at its port, through a tunnel.
//
// In: a running sandbox's id, variables. Out: an error, or processes that the daemon starts from then on have them.
//
// # Rules
//
//   - Variables are in the body of one request, and in no error, log or store: TestNoErrorHasAValue.
//   - The daemon's token is the one that the gateway for E2B clients derives (package sandboxd); because the first token of a
//     daemon stays.
//   - A daemon that does not respond is asked again for a while; because its container may have begun just now. One that
//     refuses is not.
package environment
