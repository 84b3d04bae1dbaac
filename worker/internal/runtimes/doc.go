// SPDX-License-Identifier: Apache-2.0

// Package runtimes renders the runtimes of a template, which belong to the Pod's first container. It is pure.
//
// In: a pool's spec. Out: Pods' ports and readiness probe, the worker's own checks, a runtime's log file.
//
//	render.go   ports and the readiness probe
//	daemon.go   atoll-sandboxd, for the runtime e2b
//	checks.go
//	logfile.go
//
// # Rules
//
//   - A runtime's port becomes a named port, unless the template declares it; it opens nothing.
//   - The readiness probe is that of the first runtime with one, else a TCP connect each second to the first TCP port: TestRender.
//   - A template's own probe stays. No probe is added if the idle image is another one; because that may lack the runtime.
//   - The worker checks the other readinessProbes once (package hooks), but no bare port; because not every cluster has a path from worker
//     to Pods.
//   - Pods that predate the rendering of probes are not replaced for that: package pool accepts both renderings.
//   - Pods of a template with the runtime e2b get the daemon through an init container, unless their image contains it: TestDelivery. The
//     init container has the first container's resources, so that the Pod's do not change, and the rights that the strictest Pod security
//     standard permits.
//   - Such Pods are never reset (package sandbox: init containers, a writable volume), so nothing in the daemon outlives a sandbox (I13).
//   - Log returns container and file. The command Tail reads the file there: TestLog. An image without tail has no logs.
package runtimes
