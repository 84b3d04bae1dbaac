// SPDX-License-Identifier: Apache-2.0

// Package kubelet holds Atoll to what only real kubelets show: processes that are replaced and ask to be found, images that
// cannot be pulled, containers that end, Pods that are deleted and evicted, nodes that hang and come back, and what one
// tenant leaves for the next (I13).
//
// Its tests are built with the tag kind alone, and run with `make e2e PLANE=kind`. They bring up two clusters of their own,
// as clusters/*.yaml describes them: in one the kubelet restarts containers at once, in the other it backs off as kubelets
// do by default. All sandboxes are e2e/tenant. The suite ends with a table of what it measured.
//
// What it finds to be different from planes goes into e2e/plane's Stages; TestWhatASwapKeeps is the evidence for what
// worker/internal/sandbox takes for residue.
package kubelet
