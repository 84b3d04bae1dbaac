// SPDX-License-Identifier: Apache-2.0

// Package stack runs Atoll as users do: a hub and one worker per cluster, with mutual TLS.
//
// In: clusters. Out: addresses, clients and faults (killed, stopped, frozen programs; frozen API servers), the same for both:
//
//	Start    on planes: processes of this machine, which end with the planes; workers under their chart's RBAC
//	Install  on kind: containers, installed by helm; callers reach the hub with TLS and an API key, a worker through a forwarded port
//
// All suites write their Envs with Env, and claim with an EnvCaller, which records what it holds.
package stack
