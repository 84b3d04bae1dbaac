// SPDX-License-Identifier: Apache-2.0

// Command atoll-worker makes one cluster a member of a federation: it reconciles the cluster's own segment of every SandboxEnv,
// hands out its Pods, and reports to the hub. Without a hub it does all but the last (I8).
//
// run.go is the wiring, with the one list of what is added in which order. reconcilers.go adds the controllers.
//
//	internal/env                Envs → pools, status of the local segment
//	internal/snapshot           a member's pool, rendered and frozen
//	internal/replicas           a member's replicas: the user's or the autoscaler's
//	internal/podtemplate        templates → what pools get, faults, conditions
//	internal/standalone         pools without an Env → their template's fields
//	internal/adoption           pools without an Env → an Env
//	internal/autoscale          waiting claims, idle Pods → replicas in the Env; pkg/scalepolicy decides
//	internal/admission          plugins that admit pools and Pods
//	internal/foreigncontroller  objects that another controller keeps, and that this worker leaves alone
//	internal/controllers        what these controllers share
//	internal/pool               pools → Pods, lives and records of sandboxes
//	internal/history            records of ended sandboxes, on every replica
//	internal/inventory          Pods, Nodes and pools → idle Pods and running sandboxes
//	internal/claim              claims → one Pod write
//	internal/sandboxes          sandboxes from claim to end; timeouts (internal/idle), pauses and releases
//	internal/podtunnel          connections to sandboxes
//	internal/agent              the link to the hub
//	internal/sync               foreign segments → status, under its own ServiceAccount
//	internal/localapi           the public API about this cluster
package main
