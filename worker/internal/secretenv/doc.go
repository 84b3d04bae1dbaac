// SPDX-License-Identifier: Apache-2.0

// Package secretenv reads the values of Secrets that a claim's environment refers to (secrets of a create).
//
// In: references of a claim, the rules of --sandbox-secrets. Out: variables, for package podtunnel to give to the sandbox's daemon.
//
// # Rules
//
//   - A Secret is read in the sandbox's namespace alone, and if a rule allows its name there: TestRules, TestSecretsOfAnAPIServer. Without
//     rules none is read.
//   - The annotation agentbox.navix.sh/hook-secret-teams limits a Secret to teams, as it does for hooks. Another team's is the same as
//     none; because a caller must not learn which Secrets a namespace has.
//   - A claim that refers to what may not be read, or is missing, is refused before it has a Pod. It may go to another cluster; because
//     each has its own rules and Secrets.
//   - Values are read for each create, live. They are kept nowhere, and in no error: TestNoErrorHasAValue.
package secretenv
