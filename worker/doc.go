// SPDX-License-Identifier: Apache-2.0

// Command atoll-worker makes one cluster a member of a federation: it keeps the cluster's own segment of every SandboxEnv
// true, hands out its Pods, and speaks for it to the hub. Without a hub it does all of that but the last (I8).
//
// run.go is the wiring: what answers and what speaks to others. reconcilers.go is the part of it that keeps objects true.
//
//	internal/env        Envs → pools, status of the local segment
//	internal/standalone       pools without an Env → what their template says; internal/adoption → an Env for them
//	internal/podtemplate  who uses a template, and what is wrong with it
//	internal/autoscale  claims that wait, Pods that idle → replicas, in the Env; pkg/scalepolicy decides
//	internal/admission  who is asked before a pool grows or a Pod is made
//	internal/foreigncontroller      what another controller keeps, and all others leave alone
//	internal/pool       pools → Pods, lives and records of sandboxes
//	internal/history    records of sandboxes that have ended, on every replica
//	internal/claim      claims → one Pod write; touches, timeouts (internal/idle) and releases → another
//	internal/podtunnel  conversations with sandboxes
//	internal/agent      the link to the hub
//	internal/sync       foreign segments → status, under a ServiceAccount of its own
//	internal/localapi   the public API about this cluster
package main
