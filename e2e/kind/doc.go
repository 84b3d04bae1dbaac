// SPDX-License-Identifier: Apache-2.0

// Package kind runs real Kubernetes clusters, with kubelets and containers, side by side on one machine.
//
// In: names of files in kind-configs. Out: clusters on one network, with Ready Nodes, DNS, images on demand. It has package plane's
// functions, and faults of a node or its processes.
//
//   - It needs kind, kubectl and, for faults, kind's container engine. KIND_NODE_IMAGE names another node image.
//   - Clusters outlive a killed process; because their names belong to the machine. An Up that finds one fails, and names the command that
//     deletes it.
//   - KEEP=1 leaves clusters at the end. REUSE=1 uses existing ones, creates missing ones, and keeps all.
package kind
