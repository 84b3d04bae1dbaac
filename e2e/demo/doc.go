// SPDX-License-Identifier: Apache-2.0

// Command demo shows Atoll on one machine, with three control planes or kind clusters: routed claims, a swap, releases, foreign segments,
// the hub killed, a cluster cut off, growth up to a quota, a verification.
//
// It writes bin/demo/summary.json, and exits with 0 only if every step passed its check.
package main
