// SPDX-License-Identifier: Apache-2.0

// Package kind runs real Kubernetes clusters, with kubelets and containers, side by side on one machine.
//
// In go names of files in kind-configs. Out comes one kind cluster for each: Node Ready, DNS working, images loaded on demand.
// It has the functions of package plane, and faults of a node: processes on it that hang or die, and the node itself that
// hangs, crashes and recovers. All clusters share one network and find each other's nodes by name.
//
//	set, err := kind.Up(ctx, kind.Options{}, "hub", "worker-a")
//	defer set.Down(ctx)
//	err = set.Load(ctx, "bin/images/atoll-worker.tar")
//
// It needs the commands kind and kubectl, and kind's container engine for faults. Clusters use kind's default node image, or
// the one in the variable KIND_NODE_IMAGE.
//
// # Lifetime
//
// Clusters outlive a killed process: no other process removes them. Their names belong to the machine, not the process: an Up
// that finds one of them fails, and names the command that deletes it. KEEP=1 in the environment leaves the clusters in place
// at the end. REUSE=1 uses existing clusters, creates missing ones, and keeps them.
package kind
