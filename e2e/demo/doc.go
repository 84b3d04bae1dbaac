// SPDX-License-Identifier: Apache-2.0

// Command demo shows the whole of Atoll on one machine: three real control planes, or kind clusters with the charts
// installed, a worker in each, a hub; an Env whose segments live in all three; claims that land where there is room; a swap,
// releases, foreign segments; the hub killed and back; one cluster cut off; a pool that grows, up to its team's quota; and all
// of it verified.
//
// Every step checks what it shows. The command exits 0 only if all of them held, and writes bin/demo/summary.json.
package main
