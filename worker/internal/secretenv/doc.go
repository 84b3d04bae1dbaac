// SPDX-License-Identifier: Apache-2.0

// Package secretenv reads the values of Secrets that a claim's environment refers to (secrets of a create).
//
// In: references of a claim, the rules of --sandbox-secrets. Out: variables, which package podtunnel sends to the sandbox's daemon.
//
// # Rules
//
//   - A Secret is read only in the sandbox's namespace, and only if a rule allows its name there: TestRules, TestSecretsOfAnAPIServer.
//     Without rules none is read.
//   - The annotation agentbox.navix.sh/hook-secret-teams limits a Secret to teams, as it does for hooks. Another team's Secret counts as
//     missing; because a caller must not learn which Secrets a namespace has.
//   - A claim that refers to a forbidden or missing Secret is refused before it has a Pod. It may go to another cluster; because each has
//     its own rules and Secrets.
//   - Values are read live for each create. They are stored nowhere, and no error contains them: TestNoErrorHasAValue.
package secretenv
