// SPDX-License-Identifier: Apache-2.0

// Package hosted runs one isolated worker for each cluster of a multicluster-runtime Provider, in one process.
//
// In: a Provider's calls of Engage, runner.Options. Out: a runner.Worker a cluster, its metrics, Leases of the hosting cluster.
//
//	host.go      Host, a multicluster.Aware: one goroutine a cluster, which tries until its cluster is taken away
//	share.go     Share: which replica runs which cluster, by Leases of the hosting cluster
//	decide.go    pure: which clusters a replica takes and gives up
//	followed.go  the clusters that a provider of ours has engaged, each with its kubeconfig
//	providers.go kubeconfig (Secrets), as the module reads them; the ids of clusters
//	files.go     file, a directory of kubeconfigs
//	objects.go   clusters that objects of one kind describe, with credentials in Secrets
//	clusterapi.go, inventory.go  what Clusters of Cluster API and ClusterProfiles say
//	run.go       the flags, and a process that hosts
//
// The module has its providers for Cluster API and ClusterProfiles apart, with the modules of these; they are two kinds of objects here,
// read as they are. Its provider of Secrets is not used; because it ends a cluster before it knows whether the changed Secret can be used.
//
// # Rules
//
//   - Engage returns at once, and never an error: a cluster that cannot be served is tried again, and its provider and the other
//     clusters notice nothing (I7): TestI7EngageReturnsAtOnceAndTheOthersAreServed.
//   - A cluster has its own context, caches, lease, certificate, incarnation and stream. Nothing but the configuration is taken of the
//     cluster.Cluster that a provider hands over; because its caches are shared and its life is the provider's.
//   - An engagement ends by its own context or by the next one of its name. New credentials start a new worker once the old one has
//     stopped: TestNewCredentialsStartANewWorker.
//   - No provider runs a program or reads a file that a kubeconfig or a ClusterProfile names. What cannot be used leaves the cluster as it
//     was (I5), and is told once; the objects of others are not held up by it: TestI7ClusterAPI, TestI7ClusterInventory,
//     TestSecretsAreFollowed, TestFilesAreFollowed.
//   - By a kubeconfig of Cluster API, which is an administrator's, the worker acts as its ServiceAccount. A Secret with a token names
//     the ClusterProfile that may use it.
//   - Two names with one cluster id: the second waits until the first is gone.
//   - A Share spreads work and protects nothing. That one process alone leads a cluster is held by the Lease in that cluster, which is the
//     one of a worker inside; so a cluster moves from one to the other by starting one and stopping the other.
//   - A hosting cluster whose API server is gone ends no worker: replicas keep what they have.
package hosted
