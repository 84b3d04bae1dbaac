// SPDX-License-Identifier: Apache-2.0

// Command demo shows all of Atoll on one machine: three real control planes, or kind clusters with the charts installed, a
// worker in each, a hub; an Env with segments in all three; claims routed to where there is room; a swap, releases, foreign
// segments; the hub killed and restarted; one cluster cut off; a pool that grows up to its team's quota; a verification of all
// of it.
//
// Every step checks its result. The command exits with 0 only if all of them passed, and writes bin/demo/summary.json.
package main
