// SPDX-License-Identifier: Apache-2.0

// Package netpolicy closes the network around the Pods of pools, and opens what a pool's annotation agentbox.navix.sh/egress lists.
//
// In: pools and SandboxTemplates from the manager's cache. Out: one NetworkPolicy for each pool, owned by it; with Cilium a
// CiliumNetworkPolicy as well, for names; and a gate (pool.Gate): the condition NetworkPolicyApplied, and that the first Pods wait for
// the policy. A chart cannot do this: it knows neither the namespaces that will have pools nor what their templates need.
//
//	egress.go      the annotation's grammar (pure)
//	render.go      the objects for a pool (pure)
//	reconciler.go  gather, render, apply
//	gate.go        what the pool reconciler is told
//
// # Rules
//
//   - Nothing goes in but from the worker: hooks by HTTP, and readiness checks. Exec, logs and ports go through the kubelet, which no
//     NetworkPolicy holds up. Nothing goes out but what is listed. NetworkPolicies add up: a further one opens more.
//   - An annotation that cannot be read opens nothing. The condition says which item, and what is valid. Pods go on (I6).
//   - Addresses of cloud metadata services are left out of every block that is wider than they are. One that is listed by itself opens
//     only if the pool's SandboxTemplate lists it as well; because templates are written by cluster administrators, pools are not.
//   - The annotation is bounded: 4 KiB, 64 items, 8 ports an item (I14).
package netpolicy
