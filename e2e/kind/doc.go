// SPDX-License-Identifier: Apache-2.0

// Package kind runs real Kubernetes clusters, kubelets and containers included, side by side on one machine.
//
// In go names of files in kind-configs; out comes one kind cluster for each: Node Ready, DNS working, images loaded on
// demand. It offers what package plane offers for planes, and the faults that take a node: processes in it that hang or
// die, the node itself that hangs, crashes and comes back. All clusters share one network and find each other's nodes by
// name.
//
//	set, err := kind.Up(ctx, kind.Options{}, "hub", "worker-a")
//	defer set.Down(ctx)
//	err = set.Load(ctx, "bin/images/atoll-worker.tar")
//
// It knows the commands kind and kubectl, and kind's container engine for faults. Clusters are created from the node image
// that kind comes with, or the one in the variable KIND_NODE_IMAGE.
//
// # Lifetime
//
// Clusters outlive a process that is killed: nobody else could remove them. Their names are those of the machine, not of
// the process, so an Up that finds one of them refuses to touch it and names the command that deletes it. KEEP=1 in the
// environment leaves all in place at the end; REUSE=1 takes what is there, creates what is missing, and keeps it.
package kind
