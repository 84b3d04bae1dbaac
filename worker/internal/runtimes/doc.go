// SPDX-License-Identifier: Apache-2.0

// Package runtimes makes the runtimes of a template mean something. It is pure: a pool's spec goes in; ports and a readiness
// probe of its Pods, the checks that the worker makes itself, and the place of a runtime's log come out.
//
// A runtime belongs to the Pod's first container, the one whose image is swapped.
//
// # Ports
//
// Each runtime with a port becomes a named port of that container, unless the template declares the port itself. Ports of a
// Pod inform; nothing listens or is let through because of them.
//
// # Readiness
//
// A sandbox is ready when its runtimes are. A container has one readiness probe, so of a pool's runtimes the first with a
// readinessProbe, else the first with a TCP port, gives it to the container: its own, or the attempt to connect, once a
// second. What the template says is never overridden, and neither is a probe added where it would keep idle Pods from ever
// being ready: to a pool whose idle image is not the template's own, which need not contain the runtime.
//
// A readinessProbe that no kubelet was given, for either reason or because it is a second one, is the worker's to make,
// once, before the sandbox runs (Checks, carried out by package hooks). Such a probe needs a way from the worker to the
// Pods; a runtime that has only a port is not checked so, since not every cluster has that way.
//
// Pods from before a pool's runtimes became probes lack them, and are not replaced for that: package pool counts both
// renderings of the same template as current.
//
// # Logs
//
// Log resolves a runtime's name to the container and the file, which package podtunnel reads with Tail, a command in that
// container. An image without tail, a distroless one say, has no way to read it.
package runtimes
