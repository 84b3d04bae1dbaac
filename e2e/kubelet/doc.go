// SPDX-License-Identifier: Apache-2.0

// Package kubelet tests what only real kubelets do: processes that are replaced, images that cannot be pulled, containers that
// end, Pods that are deleted and evicted, nodes that hang and recover, and data that one tenant leaves for the next (I13).
//
// Its tests need the build tag kind; run them with `make e2e PLANE=kind`. They bring up two clusters of their own
// (clusters/*.yaml): in one the kubelet restarts containers at once, in the other it backs off as by default. All sandboxes are
// e2e/tenant. The suite ends with a table of its measurements.
//
// Where it differs from planes, e2e/plane's Stages are corrected. TestWhatASwapKeeps is the evidence for the residue that
// worker/internal/sandbox assumes.
package kubelet
