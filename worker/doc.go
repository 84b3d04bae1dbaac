// SPDX-License-Identifier: Apache-2.0

// Command atoll-worker makes one cluster a member of a federation: it keeps the cluster's own segment of every SandboxEnv
// true, hands out its Pods, and speaks for it to the hub. Without a hub it does all of that but the last (I8).
//
// run.go is the wiring, with the one list of what is added in which order. reconcilers.go is the part that keeps objects true.
//
//	internal/env                Envs → pools, status of the local segment; by
//	internal/snapshot           a member's pool, rendered and frozen, and
//	internal/replicas           who sets a member's replicas
//	internal/podtemplate        what a template gives to pools, what is wrong with it, and who uses it
//	internal/standalone         pools without an Env → what their template says; internal/adoption → an Env for them
//	internal/autoscale          claims that wait, Pods that idle → replicas, in the Env; pkg/scalepolicy decides
//	internal/admission          who is asked before a pool grows or a Pod is made
//	internal/foreigncontroller  what another controller keeps, and all others leave alone
//	internal/controllers        what all of these controllers have in common
//	internal/pool               pools → Pods, lives and records of sandboxes
//	internal/history            records of sandboxes that have ended, on every replica
//	internal/inventory          Pods, Nodes and pools → who is idle, and what runs
//	internal/claim              claims → one Pod write
//	internal/sandboxes          sandboxes from their claim to their end; timeouts (internal/idle), pauses and releases
//	internal/podtunnel          conversations with sandboxes
//	internal/agent              the link to the hub
//	internal/sync               foreign segments → status, under a ServiceAccount of its own
//	internal/localapi           the public API about this cluster
package main
