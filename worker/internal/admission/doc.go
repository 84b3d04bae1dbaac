// SPDX-License-Identifier: Apache-2.0

// Package admission asks plugins before a pool is created, resized or deleted, and before a Pod is created.
//
// In: a Change or a PodRequest. Out: a Verdict: how much is admitted, and for the rest the reason and when to ask again. A plugin
// implements those of the four interfaces that it needs. Chain admits what all plugins admit.
//
//	chain.go      asks all plugins
//	refusals.go   a plugin: pools whose Pods are refused do not grow
//	classify.go   refusals by ResourceQuotas and LimitRanges
//	metrics.go
//	admission.go  questions, Verdicts, the interfaces of plugins
//
// # Rules
//
//   - An error stops the change, but is no refusal; because a refusal makes a pool saturated, and an error is retried:
//     TestAnErrorIsNoRefusal.
//   - Plugins are asked once, where a change begins: PreCreatePool when a member is rendered, PreUpdatePool before replicas grow,
//     PreCreatePod before each Pod.
//   - PreCreatePool's Verdict, and the labels, annotations and spec that it adds, are frozen in the snapshot: TestPluginsEditPools.
package admission
