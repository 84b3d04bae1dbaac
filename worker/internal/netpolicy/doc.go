// SPDX-License-Identifier: Apache-2.0

// Package netpolicy closes the network around the Pods of pools, and opens what a pool's annotation agentbox.navix.sh/egress lists.
//
// In: pools and SandboxTemplates. Out: a NetworkPolicy per pool that closes, owned by it, and another one that opens, if it lists
// something; with Cilium a CiliumNetworkPolicy for names; and a pool.Gate: NetworkPolicyApplied, and that the first Pods wait for it.
//
//	egress.go      the annotation's grammar (pure)
//	render.go      the objects (pure)
//	reconciler.go
//	gate.go
//
// # Rules
//
//   - Only the worker's hooks and checks go in; exec, logs and ports go through the kubelet. Only what is listed goes out. A further
//     NetworkPolicy opens more.
//   - The Pod of a sandbox whose claim has denyEgress has a label, by which what opens does not select it. The CNI needs a moment
//     to see it.
//   - An annotation that cannot be read opens nothing, and the condition says which item and what is valid. Pods go on (I6).
//   - Addresses of cloud metadata services are cut out of wider blocks. Listed alone they must be in the SandboxTemplate too; because
//     cluster administrators write that.
//   - The annotation is bounded: 4 KiB, 64 items, 8 ports an item (I14).
package netpolicy
