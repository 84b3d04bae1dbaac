// SPDX-License-Identifier: Apache-2.0

// Package runner provides a whole worker as a value, built from the configuration of a cluster's API server and Options. It runs until its
// context ends, and any number of workers run in one process.
//
// In: rest.Config, Options, a logger. Out: Run.
//
//	run.go         the wiring, with the one list of parts in the order in which they are added
//	manager.go     the manager and its caches
//	link.go        the parts that need a hub: the agent, its tunnels and its catalogue
//	options.go     the flags
//	reconcilers.go the controllers
//	identity.go    the certificate
//	probes.go      metrics and health
//
// # Rules
//
//   - A worker has its own manager, caches, clients, lease, clocks and metrics. None of its state is global.
//   - If a process would have to end (the lease lapsed), Run returns an error and its caller decides. No part of the worker keeps running.
//   - A hosted worker's metrics are in a registry of its own, with the constant label cluster. A worker that is alone in its process
//     registers them in the process's registry, without the label.
package runner
