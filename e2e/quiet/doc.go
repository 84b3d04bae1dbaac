// SPDX-License-Identifier: Apache-2.0

// Package quiet counts what Atoll writes to an API server when there is nothing to write, and fills one with as many Envs
// and Pods as that should be true of.
//
// In go a plane with an audit log and the stack on it; out come the writes in a stretch of time, by who made them and what
// they were. The test here is small, and fails when something is written at rest; the bench uses the same with 1000 Envs and
// 10,000 Pods, for as long as it is told to.
//
// A lease renewal is no write in this sense. What others write, kubelets say, is told apart by the user agent.
package quiet
