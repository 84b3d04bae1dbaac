// SPDX-License-Identifier: Apache-2.0

// Package hosted runs one isolated worker for each cluster of a multicluster-runtime Provider, in one process.
//
// In: a Provider's calls of Engage, runner.Options. Out: a runner.Worker for each cluster, its metrics, Leases of the hosting cluster.
//
//	run.go         the flags, and a process that hosts workers
//	providers.go   kubeconfig (Secrets), as the module reads them; the ids of clusters
//	files.go       file, a directory of kubeconfigs
//	clusterapi.go  Clusters of Cluster API as a source of clusters
//	inventory.go   ClusterProfiles as a source of clusters
//	objects.go     clusters that objects of one kind describe, with credentials in Secrets
//	followed.go    the clusters that one of our providers has engaged, each with its kubeconfig
//	host.go        Host, a multicluster.Aware: one goroutine per cluster, which retries until its cluster is disengaged
//	share.go       Share: which replica runs which cluster, by Leases of the hosting cluster
//	decide.go      which clusters a replica takes and gives up (pure)
//
// The module has its providers for Cluster API and ClusterProfiles apart, with the modules of these projects. Here these are two kinds of
// objects, which are read as they are. The module's provider of Secrets is not used, because it ends a cluster before it knows whether the
// changed Secret can be used.
//
// # Rules
//
//   - Engage returns immediately, and never an error: a cluster that cannot be served is retried, without an effect on its provider and the
//     other clusters (I7): TestI7EngageReturnsAtOnceAndTheOthersAreServed.
//   - A cluster has its own context, caches, lease, certificate, incarnation and stream. Only the configuration of a provider's
//     cluster.Cluster is used; because its caches are shared and its life is the provider's.
//   - An engagement ends by its own context or by the next one of its name. New credentials start a new worker after the old one has
//     stopped: TestNewCredentialsStartANewWorker.
//   - No provider runs a program or reads a file that a kubeconfig or a ClusterProfile names. An invalid object or kubeconfig leaves the
//     cluster as it was (I5), and is reported once; it does not delay other objects: TestI7ClusterAPI, TestI7ClusterInventory,
//     TestSecretsAreFollowed, TestFilesAreFollowed.
//   - With a kubeconfig of Cluster API, which is an administrator's, the worker acts as its ServiceAccount. A Secret with a token names the
//     ClusterProfile that may use it.
//   - If two names have one cluster id, the second waits until the first is gone.
//   - A Share spreads work and protects nothing. That only one process leads a cluster is ensured by the Lease in that cluster, which a
//     worker inside of the cluster uses as well; so a cluster moves from one to the other by starting one and stopping the other.
//   - If the hosting cluster's API server is gone, no worker ends: replicas keep their clusters.
package hosted
