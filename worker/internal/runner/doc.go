// SPDX-License-Identifier: Apache-2.0

// Package runner is a whole worker as a value: built from the configuration of a cluster's API server and Options, it runs until its
// context ends, and any number of workers run in one process.
//
// In: rest.Config, Options, a logger. Out: Run.
//
//	run.go         the wiring, with the one list of what is added in which order
//	manager.go     the manager and its caches
//	link.go        what needs a hub: the agent, its tunnels and its catalogue
//	options.go     the flags
//	reconcilers.go the controllers
//	identity.go    the certificate
//	probes.go      metrics and health
//
// # Rules
//
//   - A worker has its own manager, caches, clients, lease, clocks and metrics. Nothing in it is global.
//   - Run returns an error where a process would have to end (the lease lapsed); its caller decides. Nothing of the worker runs on.
//   - A hosted worker's metrics are in a registry of its own, with the constant label cluster; one that has its process
//     alone registers in that process's registry, without the label.
package runner
