// SPDX-License-Identifier: Apache-2.0

// Package runtimes renders the runtimes of a template, which belong to the Pod's first container. It is pure.
//
// In: a pool's spec. Out: Pods' ports and readiness probe, the worker's own checks, a runtime's log file.
//
//	render.go   ports and the readiness probe
//	checks.go
//	logfile.go
//
// # Rules
//
//   - A runtime's port becomes a named port, unless the template declares it; it opens nothing.
//   - The readiness probe is that of the first runtime with one, else a TCP connect each second to the first TCP port: TestRender.
//   - A template's probe stays. No probe is added for another idle image; because that may lack the runtime.
//   - The worker makes the other readinessProbes once (package hooks), but checks no bare port; because not every cluster has a path from
//     worker to Pods.
//   - Pods from before runtimes became probes are not replaced for that: package pool counts both renderings.
//   - Log returns container and file, read by Tail, a command there: TestLog. An image without tail has no logs.
package runtimes
