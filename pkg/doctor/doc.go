// SPDX-License-Identifier: Apache-2.0

// Package doctor tells what is wrong with a federation, since when, and what to do about it.
//
// In go a look at hub and clusters (package verify) and, of clusters whose API server can be asked, what is installed there
// (Inspect); out come diagnoses, worst first, each with a typed reason and a command to run. Diagnose is pure. Where verify
// says which invariant is broken, which is a defect, this says what keeps callers from being served, which mostly is not.
//
// Durations are from one clock each: the hub's monotonic one for clusters, the API server's for what is in a cluster (I11).
// Ends of certificates and keys are compared with the hub's clock, which is what judges them.
//
// The hub alone knows of clusters, of members by state and counts, of its own store, certificates and keys. Conditions,
// rights, installed files and Pods are told by the clusters alone: without them nothing is said about these.
package doctor
