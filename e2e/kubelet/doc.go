// SPDX-License-Identifier: Apache-2.0

// Package kubelet tests what only real kubelets do: replaced processes, failed pulls, ended containers, deleted and evicted Pods, hung
// nodes, and data left for the next tenant (I13).
//
// It needs the build tag kind (`make e2e PLANE=kind`). Of its two clusters (clusters/*.yaml) one restarts containers at once, the other
// backs off. It ends with a table.
//
// Where it differs from planes, e2e/plane's Stages are corrected. TestWhatASwapKeeps is the evidence for what worker/internal/sandbox
// assumes.
package kubelet
