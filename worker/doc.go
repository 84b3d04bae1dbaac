// SPDX-License-Identifier: Apache-2.0

// Command atoll-worker makes one cluster a member of a federation: it keeps the cluster's own segment of every SandboxEnv
// true, hands out its Pods, and speaks for it to the hub. Without a hub it does all of that but the last (I8).
//
// run.go is the wiring, and the whole of it:
//
//	internal/env    Envs → pools, status of the local segment
//	internal/pool   pools → Pods, lives and records of sandboxes
//	internal/claim  claims → one Pod write; touches, timeouts (internal/idle) and releases → another
//	internal/agent  the link to the hub
//	internal/sync   foreign segments → status, under a ServiceAccount of its own
//	internal/localapi  the public API about this cluster
package main
