// SPDX-License-Identifier: Apache-2.0

// Package runtimes renders the runtimes of a template. It is pure.
//
// In: a pool's spec. Out: ports and a readiness probe for its Pods, the checks that the worker makes itself, and where a
// runtime's log is.
//
//	render.go   ports and the readiness probe
//	checks.go   the worker's own checks
//	logfile.go  logs
//
// A runtime belongs to the Pod's first container, the one whose image is swapped.
//
// # Rules
//
//   - Each runtime with a port becomes a named port of that container, unless the template declares the port itself. A Pod's
//     ports are informational; they open nothing. TestRender.
//   - A sandbox is ready when its runtimes are. A container has one readiness probe, so it gets that of the pool's first runtime
//     with a readinessProbe, else a TCP connect, once a second, for the first runtime with a TCP port: TestRender.
//   - A probe of the template is never overridden. No probe is added if the pool's idle image is not the template's own; because
//     that image may lack the runtime, and idle Pods would never be ready.
//   - The worker makes the readinessProbes that the container did not get, once, before the sandbox runs (Checks; package hooks
//     carries them out). It does not check a runtime that has only a port; because a check needs a network path from the worker
//     to the Pods, which not every cluster has.
//   - Pods from before runtimes became probes have none, and are not replaced for that: package pool counts both renderings of a
//     template as current.
//   - Log returns a runtime's container and log file; package podtunnel reads the file with Tail, a command in that container:
//     TestLog. An image without tail, such as a distroless one, has no readable logs.
package runtimes
