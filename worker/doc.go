// SPDX-License-Identifier: Apache-2.0

// Command atoll-worker makes one cluster a member of a federation: it reconciles the cluster's own segment of every SandboxEnv, assigns its
// Pods to claims, and reports to the hub, if there is one (I8).
//
// It parses flags; package runner is the worker.
//
// docs/architecture.md has a line for each package, and the flows between them.
package main
